// The table of tensors: what they are, how large, how their values are distributed. A click on a title sorts.

const COLUMNS = [
  ["name", "name", (app, tensor) => tensor.name || "(no name)", (tensor) => tensor.name],
  ["dtype", "type", (app, tensor) => dtypeName(app.bytes, tensor.code), (tensor) => tensor.code],
  ["shape", "shape", (app, tensor) => `[${tensor.dims.join(", ")}]`, (tensor) => tensor.dims.length],
  ["size", "size", (app, tensor) => sizeText(tensor.size), (tensor) => -tensor.size],
  ["low", "min", (app, tensor) => statistic(tensor, "low"), (tensor) => tensor.statistics?.low ?? Infinity],
  ["high", "max", (app, tensor) => statistic(tensor, "high"), (tensor) => -(tensor.statistics?.high ?? -Infinity)],
  ["mean", "mean", (app, tensor) => statistic(tensor, "mean"), (tensor) => tensor.statistics?.mean ?? Infinity],
  ["std", "std", (app, tensor) => statistic(tensor, "std"), (tensor) => -(tensor.statistics?.std ?? -Infinity)],
];

function statistic(tensor, name) {
  const value = tensor.statistics?.[name];
  if (value === undefined || value === null) return "";
  const isFar = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5);
  return isFar ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

class Tensors {
  constructor(app) {
    this.app = app;
    this.rows = [...app.model.tensors];
    this.byElement = new Map(this.rows.map((tensor) => [tensor.element, tensor]));
    const head = $("tensors-head");
    COLUMNS.forEach(([name, title, , key]) => {
      const button = make("button", `cell ${name}`, title);
      button.addEventListener("click", () => this.sort(key));
      head.append(button);
    });
    head.append(make("span", "cell histogram", "values"));
    const fill = (row, index) => this.fill(row, this.rows[index]);
    this.list = new List($("tensors-list"), 26, () => this.rows.length, fill);
    const total = this.rows.reduce((sum, tensor) => sum + tensor.size, 0);
    const notes = [`${many(this.rows.length, "tensor")}, ${sizeText(total)}`, app.facts.note,
      ...app.facts.files.map(fileText)];
    say($("tensors-note"), notes.filter(Boolean).join("; "));
    app.onSelect((element) => this.selected(element));
    app.onTheme(() => this.list.refresh());
  }

  sort(key) {
    const before = this.rows;
    this.rows = [...before].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    if (before.every((tensor, at) => tensor === this.rows[at])) this.rows.reverse();
    this.list.refresh();
    this.list.goTo(0);
  }

  fill(row, tensor) {
    for (const [name, , text] of COLUMNS) {
      const cell = make("span", `cell ${name}`);
      cell.append(make("span", "", text(this.app, tensor)));
      if (name === "name") cell.title = plain(tensor.name);
      row.append(cell);
    }
    if (tensor.statistics !== null) {
      const canvas = make("canvas", "cell histogram");
      canvas.title = sampleText(tensor.statistics);
      row.append(canvas);
      drawHistogram(canvas, tensor.statistics, this.app.colors, 84, 20);
    }
    row.classList.toggle("chosen", tensor.element === this.chosen);
    row.addEventListener("click", () => this.app.select(tensor.element));
  }

  selected(element) {
    this.chosen = element;
    this.list.refresh();
    const at = this.rows.findIndex((tensor) => tensor.element === element);
    if (at >= 0) this.list.show(at);
  }
}

function fileText(file) {
  if (file.size === null) return `${file.name} is missing: copy it beside the model`;
  return `${file.name} ${sizeText(file.size)}${file.sound ? "" : ", not sound: purexport stat says why"}`;
}

function sampleText({ seen, total, zeros, odd }) {
  const parts = [seen < total ? `a sample of ${count(seen)} of ${count(total)} values` : `all ${count(total)} values`];
  if (zeros) parts.push(`${count(zeros)} zeros`);
  if (odd) parts.push(`${count(odd)} NaN or infinite`);
  return parts.join(", ");
}

function drawHistogram(canvas, { counts }, colors, width, height) {
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d"), most = Math.max(...counts, 1), step = width / counts.length;
  context.scale(devicePixelRatio, devicePixelRatio);
  context.fillStyle = colors.weights;
  counts.forEach((number, at) => {
    const bar = number ? Math.max(1, number / most * (height - 1)) : 0;
    context.fillRect(at * step, height - bar, Math.max(0.6, step - 0.6), bar);
  });
  context.fillStyle = colors.faint;
  context.fillRect(0, height - 0.5, width, 0.5);
}
