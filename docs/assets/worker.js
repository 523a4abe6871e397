// A browser starts no worker from a page that was opened as a file; the search is one. There an iframe stands in for it:
// the script runs inside, and messages go to and fro as with a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = this.onerror = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><body></body>")
      inside.document.close()
      const inner = inside.postMessage.bind(inside)
      this.postMessage = (data) => this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })))
      this.terminate = () => frame.remove()
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...urls) =>
        Promise.all(urls.map((src) => this.load(inside, src)))
      this.ready = this.load(inside, url)
    }
    load(inside, src) {
      return new Promise((done) => {
        const script = inside.document.createElement("script")
        script.src = src
        script.onload = script.onerror = done
        inside.document.body.appendChild(script)
      })
    }
  }
}
