// Search in a site that is opened from a folder. The theme searches in a worker, and a browser starts none for a file.
// So the worker's script runs in a hidden frame here, and messages go to and fro by events.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.waiting = [];
      this.send = data => this.waiting.push(data);
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href);
      script.onload = () => {
        this.send = data => inner.dispatchEvent(new inner.MessageEvent("message", { data }));
        this.waiting.forEach(this.send);
      };
      inner.document.body.append(script);
    }
    postMessage(data) { this.send(data); }
  }
  window.Worker = window.IFrameWorker = FrameWorker; // the worker's script looks for the second name
}
