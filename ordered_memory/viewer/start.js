// Defines `OrderedMemoryViewer`, for other pages to call, and starts the viewer on this page.

const OrderedMemoryViewer = { TraceViewer, TraceList, element, shape };
Object.assign(globalThis, { OrderedMemoryViewer });

/** Fill every element that `embed` made. */
function fillPage() {
  for (const root of document.querySelectorAll(".om-traces")) {
    const data = root.querySelector("script[type='application/json']");
    if (!data) continue;
    /** @type {{ traces: Trace[] }} */
    const { traces } = JSON.parse(data.textContent ?? "");
    if (examplesOf(traces).length === 1) new TraceViewer(root, traces);
    else new TraceList(root, traces);
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", fillPage);
else fillPage();
