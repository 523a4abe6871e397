// The attention page: which token and which head are chosen, and what is shown of them. Everything follows from `state`.
(() => {
  const holder = document.getElementById("attention");
  const { layers, heads, steps, token, head, data, measures } = JSON.parse(holder.textContent);
  const rows = [...document.querySelectorAll(".row")].map((section) => ({
    box: section.querySelector(".tokens"),
    tokens: [...section.querySelectorAll(".token")],
  }));
  const table = document.querySelector(".heads");
  const cells = [...table.querySelectorAll("td")];
  const said = document.getElementById("said");
  const target = document.getElementById("target");
  const state = { row: 0, token, view: (head[0] - 1) * (heads + 1) + head[1] - 1, mode: "map", direction: "out", hovered: null };
  // A token's text, with its place where the row has that text more than once.
  const names = rows.map(({ tokens }) => {
    const texts = tokens.map((token) => token.querySelector(".text").textContent);
    const place = (i) => [...String(i)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
    return texts.map((text, i) => text + (texts.indexOf(text) === texts.lastIndexOf(text) ? "" : place(i)));
  });
  const name = (row, i) => names[row][i];
  const percent = (w) => `${(100 * w).toFixed(1)}\u00a0%`;

  // Words that this script makes, in both languages.
  const both = (en, zh) =>
    [["en", en], ["zh", zh]].map(([lang, words]) => {
      const span = document.createElement("span");
      span.lang = lang;
      span.append(...[words].flat());
      return span;
    });
  const strong = (text) => {
    const b = document.createElement("b");
    b.className = "text";
    b.textContent = text;
    return b;
  };
  const viewName = (view) => {
    const [layer, at] = [Math.floor(view / (heads + 1)) + 1, view % (heads + 1)];
    if (layer > layers) return at === 0 ? ["mean of all heads", "全部头的平均"] : ["rollout", "逐层累积（rollout）"];
    return at === heads ? [`layer ${layer}, mean`, `第 ${layer} 层平均`] : [`layer ${layer}, head ${at + 1}`, `第 ${layer} 层第 ${at + 1} 头`];
  };

  // ---- weights: low bytes and high bytes of 16-bit numbers, deflated
  const unpack = async (text, size) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const half = layers * (heads + 1) * size * size + 2 * size * size;
    return Uint16Array.from({ length: half }, (_, i) => planes[i] + 256 * planes[half + i]);
  };
  const weight = (row, view, from, to) => {
    const { weights, tokens } = rows[row];
    return weights[(view * tokens.length + from) * tokens.length + to] / steps;
  };
  // The same token in another row: the same word, as often said before. -1 where there is none.
  const same = (row, i, other) =>
    row === other ? i : rows[other].tokens.findIndex((t) => t.dataset.key === rows[row].tokens[i].dataset.key);
  const weightsOf = (row, i) =>
    rows[row].tokens.map((_, j) => (state.direction === "out" ? weight(row, state.view, i, j) : weight(row, state.view, j, i)));

  // ---- what is shown
  const showTokens = () => {
    const [row, i] = state.hovered ?? [state.row, state.token];
    rows.forEach(({ tokens }, other) => {
      const at = same(row, i, other);
      const found = at < 0 ? null : weightsOf(other, at);
      const most = found ? Math.max(...found) : 0;
      tokens.forEach((element, j) => {
        const w = found ? found[j] : 0;
        element.style.setProperty("--w", most > 0 ? (w / most).toFixed(3) : 0);
        element.querySelector("small").textContent = w >= 0.005 ? (100 * w).toFixed(0) : "";
        const chosen = j === same(state.row, state.token, other);
        element.setAttribute("aria-selected", String(chosen));
        element.classList.toggle("hovered", state.hovered !== null && j === at);
        element.tabIndex = chosen || (same(state.row, state.token, other) < 0 && j === 0) ? 0 : -1;
      });
    });
    sayTokens(row, i);
  };
  // Of a token, what the weights beside it are.
  const looks = (row, i) => {
    const who = () => strong(name(row, i));
    return state.direction === "out"
      ? [[who(), " looks at"], ["“", who(), "”看向"]]
      : [[who(), " is looked at by"], ["看向“", who(), "”的"]];
  };
  const sayTokens = (row, i) => {
    const [en, zh] = viewName(state.view);
    const lines = rows.flatMap((_, other) => {
      const at = same(row, i, other);
      if (at < 0) return [];
      const best = weightsOf(other, at).map((w, j) => [w, j]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 3);
      const list = (comma, open, close) => best.flatMap(([w, j], n) => [n ? comma : "", open, strong(name(other, j)), close, `\u00a0${percent(w)}`]);
      const who = rows.length > 1 ? [`Text ${other + 1}: `, `文本 ${other + 1}：`] : ["", ""];
      const line = document.createElement("span");
      const [looksEn, looksZh] = looks(other, at);
      line.append(...both([who[0], ...looksEn, " ", ...list(", ", "", ""), "."], [who[1], ...looksZh, "：", ...list("，", "“", "”"), "。"]));
      return [document.createElement("br"), line];
    });
    said.replaceChildren(...both(`${en[0].toUpperCase()}${en.slice(1)}.`, `${zh}。`), ...lines);
  };
  const showWeights = () => {
    const make = (kind, content, scope) => {
      const cell = document.createElement(kind);
      if (scope) cell.scope = scope;
      cell.append(...[content].flat());
      return cell;
    };
    const own = document.getElementById("weights");
    const row = state.row;
    const others = rows.map((_, k) => k).filter((k) => k !== row && same(row, state.token, k) >= 0);
    const found = new Map([row, ...others].map((k) => [k, weightsOf(k, same(row, state.token, k))]));
    const caption = document.createElement("caption");
    const [en, zh] = viewName(state.view);
    const [looksEn, looksZh] = looks(row, state.token);
    caption.append(...both([...looksEn, ` (${en})`], [...looksZh, `（${zh}）`]));
    const titles = [make("th", both("token", "词元"), "col"), make("th", others.length ? both(`text ${row + 1}`, `文本 ${row + 1}`) : both("weight", "权重"), "col")];
    for (const k of others)
      titles.push(make("th", both(`text ${k + 1}`, `文本 ${k + 1}`), "col"), make("th", both(["difference", document.createElement("br"), "(percentage points)"], ["差", document.createElement("br"), "（百分点）"]), "col"));
    const head = make("thead", make("tr", titles));
    const body = make("tbody", rows[row].tokens.map((_, j) => {
      const label = make("th", name(row, j), "row");
      label.className = "text";
      const line = [label, make("td", percent(found.get(row)[j]))];
      for (const k of others) {
        const at = same(row, j, k);
        const w = at < 0 ? null : found.get(k)[at];
        const gap = w === null ? 0 : 100 * (w - found.get(row)[j]);
        line.push(make("td", w === null ? "–" : percent(w)), make("td", w === null ? "" : `${gap > 0 ? "+" : gap < 0 ? "−" : ""}${Math.abs(gap).toFixed(1)}`));
      }
      const tr = make("tr", line);
      tr.classList.toggle("from", j === state.token);
      return tr;
    }));
    own.replaceChildren(caption, head, body);
    document.getElementById("more").hidden = own.parentElement.scrollHeight <= own.parentElement.clientHeight + 1;
  };
  const showGrid = () => {
    const colour = heat();
    const numbers = rows.map((_, k) => gridNumbers(k));
    cells.forEach((cell, view) => {
      const [en, zh] = viewName(view);
      const language = document.documentElement.dataset.language;
      cell.setAttribute("aria-selected", String(view === state.view));
      cell.tabIndex = view === state.view ? 0 : -1;
      cell.style.setProperty("--w", 0);
      let label = language === "zh" ? zh : en;
      if (state.mode === "map") {
        cell.replaceChildren(map(state.row, view, colour));
      } else {
        const shown = numbers.map((of) => of(view)).filter((value) => value !== null);
        cell.replaceChildren(...shown.flatMap((value, n) => [...(n ? [document.createElement("br")] : []), value.text]));
        if (shown.length) cell.style.setProperty("--w", Math.max(...shown.map((value) => value.share)).toFixed(3));
        label += `: ${shown.map((value) => value.text).join(", ")}`;
      }
      cell.setAttribute("aria-label", label);
    });
    const pairs = rows.length > 1 ? [" The lines in a cell are the texts in order.", "格内各行依次对应各文本。"] : ["", ""];
    const legends = {
      map: ["A row of a map is a token that looks, a column one that is looked at. Drawn by the square root, so that small weights are seen.", "热图的行是发出注意力的词元，列是被看的词元。颜色取权重的平方根，以便看清小的权重。"],
      entropy: [`Bits: small where a head chooses, large where it looks everywhere.${pairs[0]}`, `单位为比特：小表示集中，大表示分散。${pairs[1]}`],
      pair: [`Per cent of the chosen token's weight.${pairs[0]}`, `所选词元权重的百分比。${pairs[1]}`],
    };
    document.getElementById("legend").replaceChildren(
      ...both(...(legends[state.mode] ?? [`Per cent, the mean over all tokens.${pairs[0]}`, `百分比，对所有词元取平均。${pairs[1]}`])),
    );
  };
  // What a cell says of a row in the chosen mode; null where it says nothing.
  const gridNumbers = (row) => {
    const inPercent = (w) => ({ text: (100 * w).toFixed(0), share: w });
    if (state.mode === "pair") {
      const from = same(state.row, state.token, row);
      const to = same(state.row, Number(target.value), row);
      return (view) => (from < 0 || to < 0 ? null : inPercent(weight(row, view, from, to)));
    }
    const most = Math.log2(rows[row].tokens.length);
    return (view) => {
      const [layer, at] = [Math.floor(view / (heads + 1)), view % (heads + 1)];
      if (state.mode === "map" || layer >= layers || at === heads) return null;
      const value = measures[row][state.mode][layer][at];
      return state.mode === "entropy" ? { text: value.toFixed(1), share: value / most } : inPercent(value);
    };
  };
  const heat = () => {
    const probe = document.createElement("i");
    probe.style.color = "var(--accent)";
    table.append(probe);
    const rgb = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
    probe.remove();
    return rgb;
  };
  const map = (row, view, [red, green, blue]) => {
    const T = rows[row].tokens.length;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = T;
    const context = canvas.getContext("2d");
    const image = context.createImageData(T, T);
    for (let i = 0; i < T * T; i++)
      image.data.set([red, green, blue, 255 * Math.sqrt(rows[row].weights[view * T * T + i] / steps)], 4 * i);
    context.putImageData(image, 0, 0);
    return canvas;
  };
  const showTargets = () => {
    if (target.dataset.row === String(state.row)) return;
    target.replaceChildren(...rows[state.row].tokens.map((_, i) => new Option(`${i}  ${name(state.row, i)}`, i)));
    target.dataset.row = state.row;
    target.value = String(Math.min(rows[state.row].tokens.length - 1, state.target ?? mostWanted()));
  };
  // The word that the chosen token looks at most.
  const mostWanted = () => {
    const words = weightsOf(state.row, state.token).map((w, j) => (rows[state.row].tokens[j].matches(".special") ? -1 : w));
    return words.indexOf(Math.max(...words));
  };
  const showAll = () => {
    showTargets();
    showTokens();
    showWeights();
    showGrid();
  };

  // ---- what is done
  const press = (holderId, key, value) => {
    for (const button of document.getElementById(holderId).querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset[key] === value));
  };
  const chooseToken = (row, i) => {
    const before = state.row;
    Object.assign(state, { row, token: Math.max(0, Math.min(rows[row].tokens.length - 1, i)), hovered: null });
    showTargets();
    showTokens();
    showWeights();
    if (state.mode === "pair" || before !== row) showGrid();
  };
  const chooseView = (view) => {
    state.view = view;
    cells.forEach((cell, i) => {
      cell.setAttribute("aria-selected", String(i === view));
      cell.tabIndex = i === view ? 0 : -1;
    });
    showTokens();
    showWeights();
  };
  const begin = () => {
    rows.forEach(({ box, tokens }, row) => {
      tokens.forEach((element, i) => {
        element.addEventListener("pointerenter", (event) => {
          if (event.pointerType !== "mouse") return;
          state.hovered = [row, i];
          showTokens();
        });
        element.addEventListener("click", () => {
          chooseToken(row, i);
          element.focus();
        });
      });
      box.addEventListener("pointerleave", () => {
        if (!state.hovered) return;
        state.hovered = null;
        showTokens();
      });
      box.addEventListener("focusin", (event) => {
        const i = tokens.indexOf(event.target);
        if (i >= 0 && (row !== state.row || i !== state.token)) chooseToken(row, i);
      });
      box.addEventListener("keydown", (event) => {
        const at = tokens.indexOf(document.activeElement);
        const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tokens.length - 1, ArrowUp: above(tokens, at, -1), ArrowDown: above(tokens, at, 1) }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        chooseToken(row, next);
        tokens[state.token].focus();
      });
    });
    cells.forEach((cell, view) => cell.addEventListener("click", () => {
      chooseView(view);
      cell.focus();
    }));
    table.addEventListener("keydown", (event) => {
      const at = cells.indexOf(document.activeElement);
      if (at < 0) return;
      const wide = heads + 1;
      const last = layers * wide;
      const column = at % wide;
      const next = {
        ArrowLeft: at < last && column > 0 ? at - 1 : at,
        ArrowRight: at < last && column < heads ? at + 1 : at,
        ArrowUp: at === last ? last - wide : at > last ? at - 1 : at - wide,
        ArrowDown: at + wide < last ? at + wide : Math.min(cells.length - 1, at < last ? last : at + 1),
        Home: at < last ? at - column : at,
        End: at < last ? at - column + heads : at,
        Enter: at,
        " ": at,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const found = Math.max(0, next === at - wide && next < 0 ? at : next);
      chooseView(found);
      cells[found].focus();
    });
    for (const button of document.querySelectorAll("[data-direction]"))
      button.addEventListener("click", () => {
        state.direction = button.dataset.direction;
        press("directions", "direction", state.direction);
        showTokens();
        showWeights();
      });
    const setMode = (mode) => {
      state.mode = mode;
      press("modes", "mode", mode);
      showGrid();
    };
    for (const button of document.querySelectorAll("[data-mode]"))
      button.addEventListener("click", () => setMode(button.dataset.mode));
    target.addEventListener("change", () => {
      state.target = Number(target.value);
      setMode("pair");
    });
    document.addEventListener("minibert-language", showGrid);
    new MutationObserver(showGrid).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showGrid);
    addEventListener("resize", showWeights);
    for (const hidden of [table, ...document.querySelectorAll(".choices")]) hidden.hidden = false;
    showAll();
    document.documentElement.dataset.ready = "";
  };
  // The token in the line above or below, nearest to this one.
  const above = (tokens, at, step) => {
    const middle = (element) => element.offsetLeft + element.offsetWidth / 2;
    const lines = [...new Set(tokens.map((element) => element.offsetTop))].sort((a, b) => a - b);
    const line = lines[lines.indexOf(tokens[at].offsetTop) + step];
    if (line === undefined) return at;
    const there = tokens.map((element, i) => [element, i]).filter(([element]) => element.offsetTop === line);
    const x = middle(tokens[at]);
    return there.reduce((best, one) => (Math.abs(middle(one[0]) - x) < Math.abs(middle(best[0]) - x) ? one : best))[1];
  };
  Promise.all(data.map((text, row) => unpack(text, rows[row].tokens.length).then((weights) => (rows[row].weights = weights))))
    .then(begin)
    .catch(() => said.replaceChildren(...both(
      "This browser cannot unpack the weights: it is older than 2023.",
      "此浏览器无法解压权重数据（需 2023 年以后的版本）。",
    )));
})();
