// A browser starts no worker from a page that was opened as a file; the search is one. There an iframe stands in for it:
// the script runs inside, and copies of messages go to and fro, later, as with a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = this.onerror = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const send = (to, data) => {
        const copy = structuredClone(data)
        setTimeout(() => {
          const event = new MessageEvent("message", { data: copy })
          to.dispatchEvent(event)
          if (to.onmessage) to.onmessage(event)
        })
      }
      inside.postMessage = (data) => send(this, data)
      const ready = new Promise((done) => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = script.onerror = done
        inside.document.body.appendChild(script)
      })
      this.postMessage = (data) => ready.then(() => send(inside, data))
      this.terminate = () => frame.remove()
    }
  }
}
