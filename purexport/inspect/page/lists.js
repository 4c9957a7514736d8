// Small things of the document, and a list that has only the rows in sight.

const $ = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");
const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const MOST_PIXELS = 8e6;  // a browser's elements are not much higher

// Controls, the invisible characters and those that change the direction of what follows, as \u202e.
const plain = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, escaped);

function escaped(character) {
  const code = character.codePointAt(0).toString(16);
  if (code.length < 3) return `\\x${code.padStart(2, "0")}`;
  return code.length < 5 ? `\\u${code.padStart(4, "0")}` : `\\u{${code}}`;
}

// An element with text, never markup: names of a file may say anything.
function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  return text ? say(made, text) : made;
}

function say(element, text) {
  element.textContent = plain(text);
  return element;
}

// Text on a canvas.
function write(context, text, x, y, width) {
  context.fillText(plain(text), x, y, width);
}

// The same over what is there: lines behind it do not run through the letters. Of several texts the first that fits.
function writeOver(context, texts, x, y, width, colors) {
  const text = texts.find((one) => context.measureText(plain(one)).width <= width) ?? texts[texts.length - 1];
  context.strokeStyle = colors.paper;
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeText(plain(text), x, y, width);
  context.fillStyle = colors.faint;
  write(context, text, x, y, width);
}

function sizeText(bytes) {
  let amount = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (amount < 999.5 || unit === "TB") return unit === "B" ? `${bytes} B` : `${amount.toPrecision(3)} ${unit}`;
    amount /= 1000;
  }
  return "";
}

const offsetText = (offset) => `0x${offset.toString(16)}`;

function clear(element) {
  element.replaceChildren();
  return element;
}

// Rows of one height. `fill(row, index)` gives a row its content; `total()` says how many there are.
class List {
  constructor(box, height, total, fill) {
    this.box = box;
    this.height = height;
    this.total = total;
    this.fill = fill;
    this.space = make("div", "space");
    this.rows = new Map();
    this.first = 0;  // the row at the top, as a fraction where there are more than pixels
    this.waiting = false;
    box.append(this.space);
    box.addEventListener("scroll", () => this.scrolled());
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => {
      this.refresh(false);
      if (box.clientHeight) this.goTo(this.first);  // what is not shown has forgotten where it was
    }).observe(box);
  }

  get inSight() {
    return this.box.clientHeight / this.height;
  }

  get compressed() {
    return this.total() * this.height > MOST_PIXELS;
  }

  get range() {
    return Math.max(0, this.total() - this.inSight);
  }

  // Draws anew; `again` also the rows that are there.
  refresh(again = true) {
    const pixels = Math.min(this.total() * this.height, MOST_PIXELS);
    this.space.style.height = `${pixels}px`;
    if (again) this.drop(() => true);
    this.first = Math.min(this.first, this.range);
    this.draw();
  }

  show(index) {
    if (index >= Math.ceil(this.first) && index < Math.floor(this.first + this.inSight)) return;
    this.goTo(index - this.inSight / 3);
  }

  goTo(first) {
    this.first = Math.max(0, Math.min(first, this.range));
    this.box.scrollTop = this.compressed ? this.first / this.range * (MOST_PIXELS - this.box.clientHeight)
      : this.first * this.height;
    this.moved = this.box.scrollTop;
    this.draw();
  }

  scrolled() {
    const top = this.box.scrollTop;
    if (top === this.moved) return;
    this.moved = top;
    this.first = this.compressed ? top / (MOST_PIXELS - this.box.clientHeight) * this.range : top / this.height;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  wheel(event) {
    if (!this.compressed || event.ctrlKey) return;
    event.preventDefault();
    this.goTo(this.first + event.deltaY / this.height);
  }

  draw() {
    const from = Math.max(0, Math.floor(this.first) - 4);
    const to = Math.min(this.total(), Math.ceil(this.first + this.inSight) + 4);
    const top = this.compressed ? this.box.scrollTop - this.first * this.height : 0;
    this.drop((index) => index < from || index >= to);
    for (let index = from; index < to; index++) {
      let row = this.rows.get(index);
      if (row === undefined) {
        row = make("div", "row");
        this.fill(row, index);
        this.rows.set(index, row);
        this.space.append(row);
      }
      row.style.transform = `translateY(${top + index * this.height}px)`;
    }
  }

  drop(unwanted) {
    for (const [index, row] of this.rows) {
      if (unwanted(index)) {
        row.remove();
        this.rows.delete(index);
      }
    }
  }
}
