// Draws the page from the JSON that is in it. Texts are only ever set as text.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("content").textContent);
  const SVG = "http" + "://www.w3.org/2000/svg";

  /// An element with attributes and children; texts become text nodes.
  const h = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  };

  // ---- words ----------------------------------------------------------------------------------------------------
  const digits = (number) => {
    const size = Math.abs(number);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return number.toExponential(2);
    if (size >= 1000) return Math.round(number).toLocaleString("en-US");
    return String(Number(number.toPrecision(3)));
  };
  const scaled = (number, steps) => {
    const [factor, unit] = steps.find(([factor]) => Math.abs(number) >= factor) || steps[steps.length - 1];
    return `${digits(number / factor)} ${unit}`;
  };
  const UNITS = {
    number: digits,
    bytes: (number) => scaled(number, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]),
    share: (number) => `${digits(number * 100)} %`,
    seconds: (number) => scaled(number, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]),
  };
  const words = (name) => name.replace(/_/g, " ");
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const shorter = (text, length) => (text.length > length ? text.slice(0, Math.max(1, length - 1)) + "…" : text);

  // ---- trials ---------------------------------------------------------------------------------------------------
  const marks = new Map(data.marks.map((row) => [row.mark, row]));
  const columns = data.table.columns;
  const rows = data.table.rows.map((row, rank) => ({ ...row, rank }));
  const byTrial = new Map(rows.map((row) => [row.trial, row]));
  const resultColumn = columns.findIndex((column) => column.is_words);
  const cellText = (column, cell) => {
    if (cell === null) return "";
    if (typeof cell !== "number") return cell;
    return column.is_setting ? String(cell) : UNITS[column.unit](cell);
  };
  const settingsLine = (row) =>
    columns
      .map((column, at) => (column.is_setting && row.cells[at] !== null ? `${column.label}=${row.cells[at]}` : ""))
      .filter(Boolean)
      .join(" ");
  const wrapped = (text, width) => {
    const lines = [""];
    for (const word of text.split(" ")) {
      const piece = shorter(word, width);
      if ((lines[lines.length - 1] + " " + piece).length > width && lines[lines.length - 1]) lines.push(piece);
      else lines[lines.length - 1] = `${lines[lines.length - 1]} ${piece}`.trim();
    }
    return lines.slice(0, 7).join("\n");
  };
  const told = (trial) => {
    const row = byTrial.get(trial);
    if (!row) return `#${trial}`;
    const label = marks.get(row.mark).label;
    return [`#${trial} ${label}`, wrapped(settingsLine(row), 40), wrapped(row.cells[resultColumn] || "", 40)].join("\n");
  };

  // ---- shapes ---------------------------------------------------------------------------------------------------
  const SYMBOLS = {
    disc: "circle", triangle: "triangle", cross: "times", asterisk: "asterisk",
    diamond: "diamond", square: "square", star: "star",
  };
  const HOLLOW = ["cross", "asterisk"];
  const colour = (mark) => `var(--${mark})`;
  const dots = (points, mark, channels, size = 3.5) => {
    const { shape } = marks.get(mark);
    const large = { best: 2, baseline: 1.5, tied: 1.15 }[mark] || 1;
    const many = points.length > 300;
    const paint = HOLLOW.includes(shape)
      ? { stroke: colour(mark), strokeWidth: 1.5, fill: "none" }
      : { fill: colour(mark), stroke: "var(--ground)", strokeWidth: many ? 0 : 0.75 };
    const opacity = many && mark === "measured" ? 0.45 : 1;
    return Plot.dot(points, { ...channels, symbol: SYMBOLS[shape], r: size * large * (many ? 0.8 : 1), opacity, ...paint });
  };
  const icon = (mark) =>
    Plot.plot({
      className: "plot-of-report", width: 14, height: 14, margin: 0, axis: null,
      x: { domain: [-1, 1] }, y: { domain: [-1, 1] },
      marks: [dots([0], mark, { x: () => 0, y: () => 0, ariaHidden: "true" }, mark === "best" ? 2.7 : 3.4)],
    });

  // ---- figures --------------------------------------------------------------------------------------------------
  const PARTS = ["#e69f00", "#56b4e9", "#35b08b", "#d68fb8", "#efe356", "#7fa6dd", "#c3a58a", "#9ad0c2", "#e58f76"];
  const REST = "#b9bdc4";
  const base = (figure, width, height, more) => ({
    className: "plot-of-report", width, height,
    ariaLabel: figure.title, ariaDescription: figure.text,
    style: { fontSize: "12px", overflow: "visible" }, ...more,
  });

  const xScale = (axis, width) => {
    const label = axis.label;
    const at = axis.ticks.map((tick) => tick.at);
    const names = new Map(axis.ticks.map((tick) => [tick.at, tick.text]));
    const room = Math.max(4, Math.floor(width / Math.max(1, at.length) / 6.6));
    if (axis.scale === "categories") {
      return { type: "point", domain: at, label, tickFormat: (number) => shorter(names.get(number) ?? "", room), padding: 0.6, labelArrow: "none" };
    }
    const some = at.length && at.length <= width / 34;
    const ticks = some
      ? { ticks: at, tickFormat: (number) => names.get(number) ?? digits(number) }
      : { ticks: Math.max(3, Math.floor(width / 90)), tickFormat: UNITS[axis.unit] };
    if (axis.scale === "log") return { type: "log", base: 2, label, inset: 14, labelArrow: "none", ...ticks };
    return { type: "linear", label, inset: 14, labelArrow: "none", ...ticks };
  };

  /// About five round numbers; sizes are round in powers of two.
  const nice = (unit, least, most) => {
    if (unit !== "bytes" || !(most > least)) return 5;
    const step = 2 ** Math.ceil(Math.log2((most - least) / 6));
    const ticks = [];
    for (let at = Math.ceil(least / step) * step; at <= most; at += step) ticks.push(at);
    return ticks;
  };

  const drawPoints = (figure, width) => {
    const { series, line, limits } = figure;
    const height = Math.round(Math.max(230, Math.min(380, width * 0.62)));
    const points = series.flatMap((one) =>
      one.trials.map((trial, at) => ({
        trial, mark: one.mark, x: one.x[at], y: one.y[at], low: one.low[at], high: one.high[at],
      })));
    const measured = points.filter((point) => point.y !== null);
    const failed = points.filter((point) => point.y === null);
    const values = measured.map((point) => point.y).concat(limits.map((limit) => limit.at), line ? line.y : []);
    let least = Math.min(...values), most = Math.max(...values);
    // An interval that is far wider than what was measured would leave no room for it.
    const reach = (most - least || Math.abs(most) || 1) * 0.6;
    for (const { low, high } of measured) {
      if (low !== null) least = Math.min(least, Math.max(low, Math.min(...values) - reach));
      if (high !== null) most = Math.max(most, Math.min(high, Math.max(...values) + reach));
    }
    if (least > 0 && least < most * 0.7) least = 0;
    if (least === most) { least -= Math.abs(least) * 0.1 || 1; most += Math.abs(most) * 0.1 || 1; }
    const range = most - least;
    const top = figure.kind === "memory";
    const domain = [least - (failed.length && !top ? range * 0.11 : 0), most + range * (failed.length && top ? 0.12 : 0.04)];
    const edge = top ? domain[1] - range * 0.03 : domain[0] + range * 0.035;
    const placed = measured.concat(failed.map((point) => ({ ...point, y: edge })));
    const unit = UNITS[figure.y.unit];
    const steps = (at) => at >= least - range * 1e-9;
    const byMark = (mark) => placed.filter((point) => point.mark === mark);
    const whiskers = measured.filter((point) => point.low !== null && point.high !== null);
    return Plot.plot(base(figure, width, height, {
      marginLeft: 62, marginRight: 16, marginBottom: 40, marginTop: 22,
      x: xScale(figure.x, width - 78),
      y: { domain, label: figure.y.label, tickFormat: (at) => (steps(at) ? unit(at) : ""), ticks: nice(figure.y.unit, least, most), grid: true, labelArrow: "none" },
      marks: [
        Plot.ruleY([domain[0]], { stroke: "var(--control)" }),
        Plot.ruleY(limits, { y: "at", stroke: "var(--bad)", strokeDasharray: "6 4" }),
        Plot.text(limits, { y: "at", text: "label", frameAnchor: "right", dy: -7, fill: "var(--bad)", textAnchor: "end" }),
        Plot.ruleX(whiskers, {
          x: "x", y1: (point) => Math.max(point.low, domain[0]), y2: (point) => Math.min(point.high, domain[1]),
          stroke: (point) => colour(point.mark), strokeWidth: 1.25, strokeOpacity: whiskers.length > 300 ? 0.25 : 0.6,
        }),
        line
          ? Plot.line(line.x.map((x, at) => ({ x, y: line.y[at] })), {
              x: "x", y: "y", curve: line.is_steps ? "step-after" : "linear", stroke: "var(--accent)",
              strokeWidth: 1.5, strokeOpacity: 0.75,
            })
          : null,
        ...data.marks.map((row) => dots(byMark(row.mark), row.mark, { x: "x", y: "y" })),
        Plot.tip(placed, Plot.pointer({ x: "x", y: "y", title: (point) => told(point.trial), fill: "var(--raised)", stroke: "var(--control)" })),
      ],
    }));
  };

  const drawBars = (figure, width) => {
    const left = Math.min(290, Math.round(width * 0.38));
    const name = (bar) => shorter(bar.label, Math.floor(left / 7.2));
    const part = (at) => (at === figure.parts.length - 1 ? REST : PARTS[at % PARTS.length]);
    const pieces = figure.bars.flatMap((bar) => {
      let end = 0;
      return figure.parts.map((name, at) => {
        const begin = end;
        end += bar.lengths[at];
        return { bar, at, trial: bar.trial, begin, end, length: bar.lengths[at], text: `${words(name)}: ${bar.texts[at]}` };
      });
    }).filter((piece) => piece.length > 0);
    return Plot.plot(base(figure, width, figure.bars.length * 30 + 46, {
      marginLeft: left, marginRight: 22, marginTop: 6, marginBottom: 36,
      x: { domain: [0, 1], label: figure.x.label, labelArrow: "none", tickFormat: UNITS[figure.x.unit], ticks: Math.max(2, Math.floor(width / 150)) },
      y: { domain: figure.bars.map((bar) => bar.trial), label: null, tickSize: 0, padding: 0.22,
        tickFormat: (trial) => name(figure.bars.find((bar) => bar.trial === trial)) },
      marks: [
        Plot.barX(pieces, { x1: "begin", x2: "end", y: "trial", fill: (piece) => part(piece.at), insetRight: 1 }),
        Plot.text(pieces.filter((piece) => piece.length * (width - left) > 44), {
          x: (piece) => (piece.begin + piece.end) / 2, y: "trial", text: (piece) => `${Math.round(piece.length * 100)} %`, fill: "#16181d",
        }),
        Plot.tip(pieces, Plot.pointer({
          x: (piece) => (piece.begin + piece.end) / 2, y: "trial", fill: "var(--raised)", stroke: "var(--control)",
          title: (piece) => `${piece.text}\n${told(piece.trial)}`,
        })),
      ],
    }));
  };

  const drawParallel = (figure, available) => {
    const width = Math.max(available, figure.axes.length * 84 + 90);
    const many = figure.lines.length > 80;
    const span = figure.axes.map((axis, at) => {
      const numbers = figure.lines.map((line) => line.values[at]).filter((number) => number !== null);
      const place = axis.scale === "log" ? Math.log2 : (number) => number;
      const least = Math.min(...numbers.map(place)), most = Math.max(...numbers.map(place));
      return { place: (number) => (most > least ? (place(number) - least) / (most - least) : 0.5), numbers };
    });
    const last = figure.axes.length - 1;
    const vertices = figure.lines.flatMap((line) =>
      line.values.map((value, at) => ({
        trial: line.trial, line, at,
        y: value !== null ? span[at].place(value) : at === last && line.rank === null ? -0.12 : NaN,
      })));
    const ticks = figure.axes.flatMap((axis, at) => {
      const listed = axis.ticks.length
        ? axis.ticks.filter((tick) => span[at].numbers.includes(tick.at))
        : [...new Set([Math.min(...span[at].numbers), Math.max(...span[at].numbers)])]
            .map((number) => ({ at: number, text: UNITS[axis.unit](number) }));
      return listed.map((tick) => ({ at, y: span[at].place(tick.at), text: shorter(tick.text, 11) }));
    });
    const failures = figure.lines.some((line) => line.rank === null);
    const of = (test) => vertices.filter((vertex) => test(vertex.line));
    const strands = (test, more) =>
      Plot.line(of(test), { x: "at", y: "y", z: "trial", curve: "bump-x", ...more });
    const isTop = (line) => line.mark === "best";
    const isGood = (line) => !isTop(line) && line.mark !== "baseline" && line.rank !== null && line.rank >= 0.9;
    return Plot.plot(base(figure, width, 380, {
      marginLeft: 46, marginRight: 60, marginTop: 44, marginBottom: 16,
      x: { domain: [0, last], axis: null }, y: { domain: [failures ? -0.16 : -0.04, 1.04], axis: null },
      marks: [
        Plot.ruleX(figure.axes, { x: (axis, at) => at, y1: 0, y2: 1, stroke: "var(--control)" }),
        strands((line) => line.rank === null, { stroke: "var(--bad)", strokeDasharray: "3 4", strokeWidth: 1, strokeOpacity: many ? 0.35 : 0.7 }),
        strands((line) => line.rank !== null && line.rank < 0.9 && !isTop(line) && line.mark !== "baseline",
          { stroke: "var(--muted)", strokeWidth: 1, strokeOpacity: many ? 0.16 : 0.45 }),
        strands(isGood, { stroke: "var(--accent)", strokeWidth: 1.25, strokeOpacity: many ? 0.5 : 0.7 }),
        strands((line) => line.mark === "baseline", { stroke: "var(--ink)", strokeWidth: 2, strokeDasharray: "8 3" }),
        strands(isTop, { stroke: "var(--accent)", strokeWidth: 3 }),
        Plot.text(ticks, { x: "at", y: "y", text: "text", dx: -6, textAnchor: "end", fill: "var(--ink)", stroke: "var(--ground)", strokeWidth: 4 }),
        Plot.text(figure.axes, {
          x: (axis, at) => at, frameAnchor: "top", dy: -26, text: (axis) => shorter(axis.label.replace(/ \(.*\)$/, ""), 15), fill: "var(--ink)",
          fontWeight: 600, lineAnchor: "bottom",
        }),
        failures ? Plot.text(["failed"], { x: () => last, y: () => -0.12, dx: 6, textAnchor: "start", fill: "var(--bad)" }) : null,
        Plot.tip(vertices.filter((vertex) => !Number.isNaN(vertex.y)),
          Plot.pointer({ x: "at", y: "y", title: (vertex) => told(vertex.trial), fill: "var(--raised)", stroke: "var(--control)" })),
      ],
    }));
  };

  const DRAW = { points: drawPoints, bars: drawBars, parallel: drawParallel };

  const swatch = (fill) => {
    const svg = document.createElementNS(SVG, "svg");
    const box = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ width: 12, height: 12, "aria-hidden": "true" })) svg.setAttribute(name, value);
    for (const [name, value] of Object.entries({ width: 12, height: 12, rx: 2, fill })) box.setAttribute(name, value);
    svg.append(box);
    return svg;
  };

  const legend = (figure) => {
    const list = h("ul", { class: "legend" });
    if (figure.drawing === "bars") {
      figure.parts.forEach((part, at) =>
        list.append(h("li", {}, swatch(at === figure.parts.length - 1 ? REST : PARTS[at % PARTS.length]), words(part))));
    } else if (figure.drawing === "points") {
      const there = new Set(figure.series.map((series) => series.mark));
      for (const row of data.marks) if (there.has(row.mark)) list.append(h("li", {}, icon(row.mark), row.label));
      if (figure.line) list.append(h("li", {}, swatch("var(--accent)"), figure.line.label));
    } else {
      list.append(h("li", {}, swatch("var(--accent)"), "best (thick), and the best tenth"), h("li", {}, swatch("var(--muted)"), "others"));
      list.append(h("li", {}, swatch("var(--ink)"), "baseline (long dashes)"));
      if (figure.lines.some((line) => line.rank === null)) list.append(h("li", {}, swatch("var(--bad)"), "failed (short dashes)"));
    }
    return list;
  };

  /// The numbers of a figure as a table, for who cannot see it or wants to copy them.
  const figureTable = (figure) => {
    const named = (axis, number) => axis.ticks.find((tick) => tick.at === number)?.text ?? UNITS[axis.unit](number);
    let head, body;
    if (figure.drawing === "points") {
      head = ["trial", figure.x.label, figure.y.label, "95 % interval", ""];
      body = figure.series.flatMap((one) => one.trials.map((trial, at) => {
        const shown = (number) => (number === null ? "" : UNITS[figure.y.unit](number));
        const interval = one.low[at] === null ? "" : `${shown(one.low[at])} to ${shown(one.high[at])}`;
        return [String(trial), named(figure.x, one.x[at]), shown(one.y[at]), interval, marks.get(one.mark).label];
      }));
    } else if (figure.drawing === "bars") {
      head = ["trial", ...figure.parts.map(words)];
      body = figure.bars.map((bar) => [bar.label, ...bar.texts]);
    } else {
      head = ["trial", ...figure.axes.map((axis) => axis.label), ""];
      body = figure.lines.map((line) => [
        String(line.trial),
        ...line.values.map((value, at) => (value === null ? "" : named(figure.axes[at], value))),
        marks.get(line.mark).label,
      ]).reverse();
    }
    const most = 500;
    const table = h("table", { class: "data" },
      h("caption", { class: "hidden" }, figure.title),
      h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col", class: "plain" }, name)))),
      h("tbody", {}, body.slice(0, most).map((cells) =>
        h("tr", {}, cells.map((cell, at) => h(at ? "td" : "th", at ? {} : { scope: "row" }, cell))))));
    const more = body.length > most ? [h("p", { class: "hint" }, `${body.length - most} more are in trials.csv.`)] : [];
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers of: ${figure.title}` }, table, ...more);
  };

  /// Drawn when they come near the window, when nothing else is to be done, or when the page is printed.
  const waiting = new Map();
  const draw = (holder) => {
    const figure = waiting.get(holder);
    if (!figure) return;
    const width = Math.floor(holder.clientWidth);
    if (!width || holder.drawnAt === width) return;
    holder.drawnAt = width;
    const svg = DRAW[figure.drawing](figure, width);
    svg.setAttribute("role", "img");
    svg.addEventListener("click", () => svg.value && svg.value.trial && open(svg.value.trial));
    holder.classList.remove("wait");
    const scrolls = Number(svg.getAttribute("width")) > width;
    holder.classList.toggle("scrolls", scrolls);
    if (scrolls) {
      holder.setAttribute("tabindex", "0");
      holder.setAttribute("role", "region");
      holder.setAttribute("aria-label", figure.title);
    }
    holder.replaceChildren(svg);
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "500px" });
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.drawnAt) draw(target);
  });
  const drawAll = () => { for (const holder of waiting.keys()) draw(holder); };
  const drawInTurn = () => {
    const next = [...waiting.keys()].find((holder) => !holder.drawnAt && holder.clientWidth);
    if (!next) return document.documentElement.setAttribute("data-drawn", "");
    draw(next);
    idle(drawInTurn);
  };
  const idle = window.requestIdleCallback ? (task) => requestIdleCallback(task, { timeout: 500 }) : (task) => setTimeout(task, 30);

  const figureElement = (figure, isAlone) => {
    const holder = h("div", { class: "drawing wait" });
    waiting.set(holder, figure);
    near.observe(holder);
    resized.observe(holder);
    const numbers = h("details", {}, h("summary", {}, "Numbers"));
    numbers.addEventListener("toggle", () => {
      if (numbers.open && numbers.children.length === 1) numbers.append(figureTable(figure));
    });
    return h("figure", { id: `figure-${figure.name}` },
      h("h3", { class: isAlone ? "hidden" : null }, capital(figure.title)), holder, legend(figure), h("figcaption", {}, figure.text), numbers);
  };

  const figureSections = () => data.kinds.flatMap((kind) => {
    const figures = data.figures.filter((figure) => figure.kind === kind.name);
    if (!figures.length) return [];
    return [h("section", { id: kind.name, "aria-labelledby": `${kind.name}-title` },
      h("h2", { id: `${kind.name}-title` }, kind.title), h("p", { class: "about" }, kind.about),
      h("div", { class: figures.length > 1 ? "figures" : "figures one" }, figures.map((figure) => figureElement(figure, figures.length === 1))))];
  });

  // ---- code that can be copied ----------------------------------------------------------------------------------
  const code = (text) => {
    const button = h("button", { type: "button", onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(pre);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } }, "Copy");
    const pre = h("pre", { tabindex: "0" }, h("code", {}, text));
    return h("div", { class: "code" }, pre, button);
  };

  // ---- summary --------------------------------------------------------------------------------------------------
  const lines = (pairs) => h("dl", { class: "lines" }, pairs.flatMap(([label, text]) => [h("dt", {}, words(label)), h("dd", {}, text)]));

  const hero = () => {
    const { summary } = data;
    const parts = [h("div", {},
      h("p", { class: "name" }, data.title, h("br"), summary.tried), h("h1", {}, summary.headline), summary.sub ? h("p", { class: "sub" }, summary.sub) : null,
      summary.flag ? h("p", { class: "flag" }, summary.flag) : null)];
    parts.push(h("dl", { class: "cards" }, summary.cards.map((card) =>
      h("div", {}, h("dt", {}, card.label), h("dd", {}, card.value, h("small", {}, card.note))))));
    const left = [];
    if (summary.settings.length) {
      const compares = summary.settings.some((setting) => setting.before !== null);
      left.push(h("h2", {}, "Best config"),
        h("table", { class: "settings" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "setting"), h("th", { scope: "col" }, "best"),
            compares ? h("th", { scope: "col" }, "baseline") : null)),
          h("tbody", {}, summary.settings.map((setting) => h("tr", { class: setting.before !== null ? "changed" : null },
            h("th", { scope: "row" }, setting.name), h("td", { class: "now" }, setting.value),
            compares ? h("td", {}, setting.before ?? "the same") : null)))));
    }
    if (summary.importance.length) {
      left.push(h("h2", {}, "What matters"),
        h("p", { class: "about" }, "Each parameter's share of the differences between the measured configs (main effects)."),
        h("table", { class: "settings" }, h("tbody", {}, summary.importance.slice(0, 8).map(([name, share]) =>
          h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "now" }, share))))));
    }
    if (summary.account.length) {
      left.push(h("h2", {}, `Time of ${summary.account_of}`),
        h("table", { class: "settings" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), h("th", { scope: "col" }, "best"), h("th", { scope: "col" }, "baseline"))),
          h("tbody", {}, summary.account.map((branch) =>
            h("tr", {}, h("th", { scope: "row" }, branch.name), h("td", { class: "now" }, branch.is), h("td", {}, branch.was))))),
        h("p", {}, summary.next_factor));
    }
    const slots = summary.slots.length ? h("div", {}, h("h2", {}, "Slots"),
      h("table", { class: "settings slots" },
        h("thead", {}, h("tr", {}, ["slot", "where", "trials", "in use", "as fast as the first"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, summary.slots.map((slot) =>
          h("tr", {}, h("th", { scope: "row" }, String(slot.number)), h("td", {}, slot.has), h("td", {}, slot.trials), h("td", {}, slot.busy), h("td", {}, slot.level)))))) : null;
    if (summary.ties.length) {
      const shown = summary.ties.slice(0, 8);
      left.push(h("h3", {}, summary.ties.length === 1 ? "Tied with it" : `${summary.ties.length} are tied with it`),
        h("ul", { class: "ties mono" }, shown.map((tie) => h("li", {}, tie)),
          summary.ties.length > shown.length ? h("li", {}, `and ${summary.ties.length - shown.length} more`) : null));
    }
    const right = [h("h2", {}, "What to know"), lines(summary.lines)];
    if (summary.next.length) {
      right.push(h("h2", {}, "What to run next"), ...summary.next.flatMap(([label, text]) => [h("p", { class: "step" }, label), code(text)]));
    }
    parts.push(h("div", { class: "two" }, left.length ? h("div", {}, left) : null, h("div", {}, right)));
    if (slots) parts.push(slots);
    return h("div", { class: "hero" }, parts);
  };

  // ---- the table of trials --------------------------------------------------------------------------------------
  const PAGE = 50;
  const state = { sort: null, down: false, page: 0, text: "", mark: "" };
  const isNumeric = columns.map((column, at) => rows.some((row) => typeof row.cells[at] === "number"));
  const OPERATORS = {
    "=": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  };
  const tests = (text) => text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const parts = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
    const at = parts ? columns.findIndex((column) => column.label.replace(/ /g, "_") === parts[1]) : -1;
    if (at >= 0) {
      const number = Number(parts[3]);
      return (row) => {
        const cell = row.cells[at];
        if (cell === null) return false;
        const numbers = typeof cell === "number" && !Number.isNaN(number);
        return OPERATORS[parts[2]](numbers ? cell : cellText(columns[at], cell), numbers ? number : parts[3]);
      };
    }
    const low = word.toLowerCase();
    return (row) => row.words.includes(low);
  });
  for (const row of rows) {
    row.words = [`#${row.trial}`, marks.get(row.mark).label, ...columns.map((column, at) => cellText(column, row.cells[at]))].join(" ").toLowerCase();
  }
  const chosen = () => {
    const all = tests(state.text);
    const found = rows.filter((row) => (!state.mark || row.mark === state.mark) && all.every((test) => test(row)));
    if (state.sort === null) return found;
    const key = state.sort === "trial" ? (row) => row.trial : state.sort === resultColumn ? (row) => row.rank : (row) => row.cells[state.sort];
    const sign = state.down ? -1 : 1;
    return found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      if (typeof x === "number" && typeof y === "number") return sign * (x - y) || a.rank - b.rank;
      return sign * String(x).localeCompare(String(y), "en", { numeric: true }) || a.rank - b.rank;
    });
  };

  const trialSection = () => {
    const heads = [];
    const head = (label, key, numeric) => {
      const cell = h("th", { scope: "col", class: numeric ? "number" : null },
        h("button", { type: "button", onclick: () => {
          state.down = state.sort === key ? !state.down : false;
          Object.assign(state, { sort: key, page: 0 });
          fill();
        } }, label));
      heads.push([cell, key]);
      return cell;
    };
    const body = h("tbody", {});
    const table = h("table", { class: "data", id: "trial-table" }, h("caption", { class: "hidden" }, "All trials"),
      h("thead", {}, h("tr", {}, head("#", "trial", false), columns.map((column, at) => head(column.label, at, isNumeric[at] && !column.is_words)))), body);
    const count = h("p", { class: "count", role: "status" });
    const back = h("button", { type: "button", onclick: () => { state.page -= 1; fill(); } }, "Previous");
    const on = h("button", { type: "button", onclick: () => { state.page += 1; fill(); } }, "Next");
    const where = h("span", {});
    const pages = h("div", { class: "pages" }, back, where, on);
    const fill = () => {
      const found = chosen();
      const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
      state.page = Math.min(Math.max(0, state.page), last);
      body.replaceChildren(...found.slice(state.page * PAGE, (state.page + 1) * PAGE).map((row) =>
        h("tr", { class: row.mark === "best" ? "best" : null },
          h("th", { scope: "row" }, h("button", { type: "button", "aria-haspopup": "dialog", onclick: () => open(row.trial, found) },
            icon(row.mark), h("span", { class: "hidden" }, `trial, ${marks.get(row.mark).label}: `), String(row.trial))),
          columns.map((column, at) => h("td", { class: column.is_words ? "words" : isNumeric[at] ? "number" : null }, cellText(column, row.cells[at]))))));
      for (const [cell, key] of heads) {
        if (state.sort === key) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      }
      count.textContent = found.length === rows.length ? `${rows.length} trials` : `${found.length} of ${rows.length} trials`;
      pages.hidden = last === 0;
      where.textContent = `page ${state.page + 1} of ${last + 1}`;
      back.disabled = state.page === 0;
      on.disabled = state.page === last;
    };
    const there = data.marks.filter((mark) => rows.some((row) => row.mark === mark.mark));
    const example = columns.findIndex((column, at) => column.is_setting && isNumeric[at]);
    const tools = h("div", { class: "tools" },
      h("label", {}, "Filter", h("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false", "aria-describedby": "filter-hint",
        oninput: (event) => { Object.assign(state, { text: event.target.value, page: 0 }); fill(); } })),
      h("label", {}, "What became of them", h("select", { id: "outcome", onchange: (event) => { Object.assign(state, { mark: event.target.value, page: 0 }); fill(); } },
        h("option", { value: "" }, "all"), there.map((mark) => h("option", { value: mark.mark }, mark.label)))),
      count);
    fill();
    return h("section", { id: "trials", "aria-labelledby": "trials-title" }, h("h2", { id: "trials-title" }, "Trials"),
      h("p", { class: "about" }, "The best first. A number opens what is known of its trial: readings, output, why it was proposed."),
      tools,
      h("p", { class: "hint", id: "filter-hint" }, "Words that all must be there",
        example >= 0 ? `; a column and a bound, such as ${columns[example].label.replace(/ /g, "_")}>=${rows.length ? rows[0].cells[example] ?? 1 : 1}, also.` : "."),
      h("div", { class: "trials", tabindex: "0", role: "region", "aria-label": "Table of trials" }, table), pages);
  };

  // ---- one trial ------------------------------------------------------------------------------------------------
  const dialog = h("dialog", { "aria-labelledby": "trial-title" });
  const open = (trial, among) => {
    const list = among || rows;
    const row = byTrial.get(trial);
    if (!row) return;
    const at = list.findIndex((other) => other.trial === trial);
    const detail = data.details[trial] || { facts: [] };
    const step = (by, label) => h("button", { type: "button", disabled: !list[at + by], onclick: () => open(list[at + by].trial, list) }, label);
    const result = row.cells[resultColumn];
    const body = h("div", { class: "body" },
      h("div", {}, h("p", { class: "mono" }, settingsLine(row)), result ? h("p", {}, result) : null),
      timeline(detail), detail.facts.length ? lines(detail.facts) : null);
    if (detail.log !== undefined) {
      body.append(h("div", {}, h("h3", {}, "Last lines of its output"),
        h("p", { class: "about" }, `The whole is in ${detail.log_name}.`), h("pre", { tabindex: "0" }, detail.log)));
    } else if (detail.log_name !== undefined) {
      body.append(h("p", { class: "about" }, `Its output is in ${detail.log_name}.`));
    }
    dialog.replaceChildren(
      h("header", {}, h("h2", { id: "trial-title", tabindex: "-1" }, `Trial ${trial}: ${marks.get(row.mark).label}`), step(-1, "Previous"), step(1, "Next"),
        h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
      body);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    dialog.querySelector("h2").focus();
    for (const holder of [...waiting.keys()]) if (waiting.get(holder).drawing === "reading" && !holder.isConnected) waiting.delete(holder);
    for (const holder of dialog.querySelectorAll(".drawing")) draw(holder);
  };
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  /// What a trial did over its time: a small figure for each reading.
  const READINGS = [["throughput", "throughput", "number"], ["cpu_cores", "CPU cores", "number"], ["host_memory_bytes", "host memory", "bytes"],
    ["sm_active", "SM activity", "share"], ["tensor_active", "tensor cores", "share"], ["dram_active", "memory bandwidth of the GPU", "share"],
    ["gpu_busy", "GPU busy", "share"], ["memory_own", "GPU memory", "bytes"], ["power", "power of the GPU in watts", "number"],
    ["sm_clock", "SM clock in MHz", "number"]];
  const drawReading = (figure, width) => {
    const unit = UNITS[figure.unit];
    const most = Math.max(...figure.points.map((point) => point.y ?? 0)) || 1;
    return Plot.plot(base(figure, width, 130, {
      marginLeft: 62, marginRight: 14, marginTop: 10, marginBottom: 28,
      x: { label: null, domain: [0, figure.length], tickFormat: (at) => `${digits(at)} s`, ticks: Math.max(3, Math.floor(width / 110)) },
      y: { label: null, domain: [0, most * 1.05], ticks: figure.unit === "bytes" ? nice("bytes", 0, most).slice(-3) : 3, tickFormat: unit, grid: true },
      marks: [
        Plot.ruleY([0], { stroke: "var(--control)" }),
        Plot.line(figure.points, { x: "x", y: "y", stroke: "var(--accent)", strokeWidth: 1.5 }),
        Plot.dot(figure.points, { x: "x", y: "y", r: 2, fill: "var(--accent)" }),
        Plot.tip(figure.points, Plot.pointerX({ x: "x", y: "y", fill: "var(--raised)", stroke: "var(--control)",
          title: (point) => `${digits(point.x)} s: ${unit(point.y)}` })),
      ],
    }));
  };
  DRAW.reading = drawReading;
  const timeline = (detail) => {
    const kept = detail.timeline;
    if (!kept) return null;
    const parts = READINGS.flatMap(([key, label, unit]) => {
      const points = (kept[key] || kept.gpus?.[key] || []).map((y, at) => ({ x: (at + 0.5) * kept.every_s, y: y === null ? NaN : y }));
      const known = points.map((point) => point.y).filter((y) => !Number.isNaN(y));
      if (!known.length) return [];
      const text = `${capital(label)} over the time of the probe: from ${UNITS[unit](Math.min(...known))} to ${UNITS[unit](Math.max(...known))}.`;
      const holder = h("div", { class: "drawing" });
      waiting.set(holder, { drawing: "reading", title: label, text, unit, points, length: points.length * kept.every_s });
      return [h("div", {}, h("p", { class: "step" }, text), holder)];
    });
    return parts.length ? h("div", { class: "readings" }, h("h3", {}, "Over time"), parts) : null;
  };

  // ---- light and dark -------------------------------------------------------------------------------------------
  const THEMES = ["auto", "light", "dark"];
  const theme = () => {
    let kept = "auto";
    try { kept = localStorage.getItem("gputune-theme") || "auto"; } catch { /* a file may not keep anything */ }
    const button = h("button", { type: "button", id: "theme", onclick: () => set(THEMES[(THEMES.indexOf(kept) + 1) % THEMES.length]) });
    const set = (name) => {
      kept = THEMES.includes(name) ? name : "auto";
      if (kept === "auto") document.documentElement.removeAttribute("data-theme");
      else document.documentElement.setAttribute("data-theme", kept);
      button.textContent = capital(kept);
      button.setAttribute("aria-label", `Colours: ${kept}. Change`);
      try { localStorage.setItem("gputune-theme", kept); } catch { /* as above */ }
    };
    set(kept);
    return button;
  };

  // ---- the page -------------------------------------------------------------------------------------------------
  const sections = [...figureSections(), rows.length ? trialSection() : null, h("section", { id: "about", "aria-labelledby": "about-title" },
    h("h2", { id: "about-title" }, "Where it ran, and how to get it again"),
    h("div", { class: "two" }, h("div", {}, lines(data.about)),
      h("div", {}, data.reproduce.flatMap(([label, text]) => [h("p", { class: "step" }, label), code(text)]))))].filter(Boolean);
  const SHORT = { against: "Parameters", phases: "Time", progress: "Progress", parallel: "All at once", about: "Reproduce" };
  const nav = h("nav", { "aria-label": "Parts of this page" }, sections.map((section) =>
    h("a", { href: `#${section.id}` }, SHORT[section.id] || capital(section.id))));
  document.getElementById("page").replaceChildren(
    h("header", { class: "bar" }, h("div", { class: "wide" }, h("strong", {}, "gputune"), nav, theme())),
    h("main", { id: "main", class: "wide" }, hero(), sections),
    h("footer", {}, h("div", { class: "wide" }, `gputune ${data.version}. Everything on this page is in this file; it loads nothing.`)),
    dialog);
  window.addEventListener("beforeprint", drawAll);
  idle(drawInTurn);
})();
