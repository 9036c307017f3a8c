// The load generator: so many requests at the same moment, to the servers in turn.

/** Answers how often each status came. What a server did not answer is sent to the next one, as a load balancer does. */
export async function load(servers, path, requests) {
  const statuses = {};
  const send = async (at, attempts = servers.length) => {
    try {
      const response = await fetch(new URL(path, servers[at % servers.length]), { method: "POST" });
      await response.text();
      return response.status;
    } catch (error) {
      if (attempts === 1) throw error;
      return send(at + 1, attempts - 1);
    }
  };
  const count = async (status) => {
    statuses[status] = (statuses[status] ?? 0) + 1;
  };
  await Promise.all(Array.from({ length: requests }, async (_, n) => count(await send(n))));
  return statuses;
}
