// A client of the store as a process that can be stopped, killed and cut off: all that reaches it passes here.

/** What a stopped process would get waits in order of arrival; a dead one gets nothing. */
class Gate {
  #waiting = [];
  #stopped = false;
  #dead = false;

  deliver(run) {
    if (this.#dead) return;
    if (this.#stopped || this.#waiting.length > 0) this.#waiting.push(run);
    else run();
  }

  stop() {
    this.#stopped = true;
  }

  /** One after the other, with all that follows from each: as an event loop does. */
  go() {
    this.#stopped = false;
    const next = () => {
      if (this.#stopped || this.#dead) return;
      this.#waiting[0]?.();
      setTimeout(() => {
        this.#waiting.shift();
        if (this.#waiting.length > 0) next();
      }, 0);
    };
    if (this.#waiting.length > 0) next();
  }

  kill() {
    this.#dead = true;
    this.#waiting = [];
  }
}

export class Process {
  #gate = new Gate();
  #delayMs = 0;

  /** The core's clock: time goes on while the process stands still, its timers do not fire. */
  clock = {
    now: () => performance.now(),
    wallMs: () => Date.now(),
    after: (ms, run) => {
      const timer = { over: false };
      const fire = () => {
        if (!timer.over) run();
      };
      timer.id = setTimeout(() => this.#gate.deliver(fire), Math.ceil(ms));
      return timer;
    },
    cancel: (timer) => {
      timer.over = true;
      clearTimeout(timer.id);
    },
  };

  /** One way takes this long. What is under way stays under way. */
  delay(ms) {
    this.#delayMs = ms;
  }

  stop() {
    this.#gate.stop();
  }

  go() {
    this.#gate.go();
  }

  kill() {
    this.#gate.kill();
  }

  sleep(ms) {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  /** Sends a request, and gets its answer: both take their time. */
  async call(send) {
    await this.#travel();
    const answer = send();
    answer.catch(() => {});
    await this.#travel();
    return new Promise((resolve) => this.#gate.deliver(() => resolve(answer)));
  }

  /** Something comes from the store by itself. */
  async receive(deliver) {
    await this.#travel();
    this.#gate.deliver(deliver);
  }

  async #travel() {
    if (this.#delayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#delayMs));
  }
}
