// The parts of Observable Plot that the page draws with; `build` makes `plot.min.js` of them.
export { barX, dot, line, link, plot, pointer, pointerX, ruleX, ruleY, text, tip } from "@observablehq/plot";
