"use strict";
// Language, theme, and what is read off a figure. Everything works without it, in English, but for the switches.
(() => {
  const root = document.documentElement;
  const kept = (name, value) => {
    try {
      if (value !== undefined) localStorage.setItem(`minibert-${name}`, value);
      return localStorage.getItem(`minibert-${name}`);
    } catch {
      return null; // a page from a file may have no storage
    }
  };
  const setLanguage = (language) => {
    root.dataset.language = language;
    root.lang = language === "zh" ? "zh-CN" : "en";
    for (const button of document.querySelectorAll("[data-set-language]"))
      button.setAttribute("aria-pressed", String(button.dataset.setLanguage === language));
    document.dispatchEvent(new Event("minibert-language"));
  };
  setLanguage(kept("language") ?? (/^zh/i.test(navigator.language) ? "zh" : "en"));
  for (const button of document.querySelectorAll("[data-set-language]"))
    button.addEventListener("click", () => {
      kept("language", button.dataset.setLanguage);
      setLanguage(button.dataset.setLanguage);
    });
  if (kept("theme")) root.dataset.theme = kept("theme");
  for (const button of document.querySelectorAll("[data-turn-theme]"))
    button.addEventListener("click", () => {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      kept("theme", root.dataset.theme);
    });
  for (const switches of document.querySelectorAll(".switches")) switches.hidden = false;

  // ---- figures: the values at the pointer, or where the arrow keys have gone
  const short = (n) => (n === 0 ? "0" : Math.abs(n) < 0.001 ? n.toExponential(2) : Number(n.toPrecision(4)).toLocaleString("en"));
  for (const figure of document.querySelectorAll("figure.curves")) {
    const { left, right, low, high, xs, lines } = JSON.parse(figure.dataset.curves);
    const svg = figure.querySelector("svg");
    const output = figure.querySelector("output");
    if (!svg || !xs.length) continue;
    const box = svg.viewBox.baseVal;
    const mark = document.createElementNS(svg.namespaceURI, "line");
    mark.setAttribute("class", "at");
    for (const [name, value] of [["y1", box.height * high], ["y2", box.height * low]]) mark.setAttribute(name, value);
    svg.append(mark);
    const [first, last] = [xs[0], xs[xs.length - 1]];
    let at = -1;
    const show = (index) => {
      at = Math.max(0, Math.min(xs.length - 1, index));
      const share = last > first ? (xs[at] - first) / (last - first) : 0.5;
      const x = box.width * (left + (right - left) * share);
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
      figure.classList.add("looked-at");
      const keys = [...figure.querySelectorAll(".key")];
      output.replaceChildren(`${short(xs[at])}: `);
      lines.forEach((line, i) => {
        if (line[at] === null) return;
        const value = document.createElement("b");
        value.className = keys[i] ? keys[i].className.replace("key", "") : "line-1";
        value.textContent = short(line[at]);
        output.append(value, " ");
      });
    };
    const hide = () => figure.classList.remove("looked-at");
    const look = (event) => {
      const place = svg.getBoundingClientRect();
      const share = ((event.clientX - place.left) / place.width - left) / (right - left);
      const wanted = first + share * (last - first);
      let nearest = 0;
      for (let i = 1; i < xs.length; i++) if (Math.abs(xs[i] - wanted) < Math.abs(xs[nearest] - wanted)) nearest = i;
      show(nearest);
    };
    svg.addEventListener("pointermove", look);
    svg.addEventListener("pointerdown", look); // a tap, which stays until another place is tapped
    svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide());
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      show(at < 0 ? (step > 0 ? 0 : xs.length - 1) : at + step);
    });
  }
})();
