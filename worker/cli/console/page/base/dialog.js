// A modal dialog. The browser keeps the focus inside; Escape closes it; afterwards the focus is where it was.
import {html, useEffect, useId, useRef} from "./html.js";

// `onClose` must remove the dialog. With `busy`, Escape does nothing: what was begun is not undone by looking away.
export function Dialog({title, onClose, busy = false, children, size = ""}) {
  const box = useRef(null);
  const id = useId();
  const mounted = useRef(true);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
    return () => {
      mounted.current = false; // the event of this close comes later
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const leave = () => !busy && onClose?.();
  // A browser does not ask twice before it closes a dialog, so the key itself is caught.
  const onKey = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    leave();
  };
  // Closed in another way, such as the gesture to go back: it leaves, or opens again.
  const onClosed = () => {
    if (!mounted.current) return;
    if (onClose && !busy) onClose();
    else box.current.showModal();
  };
  return html`<dialog ref=${box} class=${size} aria-labelledby=${id} onKeyDown=${onKey} onClose=${onClosed}>
    <header><h2 id=${id}>${title}</h2>
      ${onClose && html`<button type="button" class="plain" aria-label="Close" disabled=${busy} onClick=${onClose}>×</button>`}
    </header>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}
