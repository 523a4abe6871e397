// The trace page: one token is followed through all tables.
(() => {
  const box = document.querySelector(".follow .tokens");
  const tokens = [...box.querySelectorAll(".token")];
  const choose = (wanted) => {
    const i = Math.max(0, Math.min(tokens.length - 1, wanted));
    tokens.forEach((token, j) => {
      token.setAttribute("aria-selected", String(j === i));
      token.tabIndex = j === i ? 0 : -1;
    });
    for (const row of document.querySelectorAll("[data-token]")) row.classList.toggle("followed", Number(row.dataset.token) === i);
    tokens[i].focus({ preventScroll: true });
  };
  tokens.forEach((token, i) => token.addEventListener("click", () => choose(i)));
  box.addEventListener("keydown", (event) => {
    const at = tokens.indexOf(document.activeElement);
    const next = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    choose(next);
  });
})();
