// Counts the steps of the page's code on the data of a page, without a browser: node page_steps.js SCRIPTS... DATA.
// A step is an element that is read, or one item that a method of an array looks at. DATA is the unpacked block.
const fs = require("node:fs");

const sources = process.argv.slice(2, -1).map((path) => fs.readFileSync(path, "utf8"));
const data = fs.readFileSync(process.argv[process.argv.length - 1]);
let steps = 0;

for (const name of ["indexOf", "includes", "find", "findIndex", "filter", "map", "splice", "slice", "concat", "push"]) {
  const method = Array.prototype[name];
  const counted = name === "push" ? (held, args) => args.length : (held) => held.length;
  Object.defineProperty(Array.prototype, name, {
    value(...args) {
      steps += counted(this, args);
      return Reflect.apply(method, this, args);
    },
  });
}

const made = new Function(`"use strict"; ${sources.join("\n")}; return { Bytes, Model, Modules, Layout };`);
const { Bytes, Model, Modules, Layout } = made();
const length = data.readUInt32LE(0), facts = JSON.parse(data.subarray(4, 4 + length).toString());
const { element } = Bytes.prototype;
Bytes.prototype.element = function counted(...args) {
  steps += 1;
  return Reflect.apply(element, this, args);
};

const model = new Model(new Bytes(facts, new Uint8Array(data.subarray(4 + length))), facts);
for (const graph of model.graphs) {
  const modules = new Modules(graph);
  new Layout(modules.view(), () => 10);
  modules.setAll(true);
  new Layout(modules.view(), () => 10);
}
console.log(steps);
