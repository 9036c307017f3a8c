import type { HolderView } from "../wire.js";
import { release } from "./connection.js";
import { byId, h } from "./dom.js";
import { bdi, ownerText } from "./text.js";

/** Asks once, names the holder and what is risked, and does it. */
export function askRelease(name: string, holder: HolderView): void {
  const dialog = byId("dialog") as HTMLDialogElement;
  const told = h("p", { role: "status" });
  const close = h("button", { type: "button", click: () => dialog.close() }, "Keep it");
  const go = h("button", { type: "button", class: "danger", click: () => void take() }, "Take it away");
  const who = h("strong", {}, bdi(ownerText(holder)));
  const title = h("h2", { id: "dialog-title" }, "Take “", bdi(name), "” away?");
  const held = h("p", {}, "It is held by ", who, ` with token ${holder.token}.`);
  const risk = h(
    "p",
    {},
    "The holder may be at work, and is told only when it asks the store next. Until then two may work at once: ",
    "only a resource that checks tokens refuses the old one, once it has seen a newer token.",
  );
  dialog.replaceChildren(title, held, risk, told, h("p", { class: "buttons" }, close, go));
  dialog.showModal();
  close.focus();

  async function take(): Promise<void> {
    go.disabled = true;
    close.textContent = "Close";
    told.textContent = await release(name, holder.token);
    close.focus();
  }
}
