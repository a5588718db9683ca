"use strict";
// Values under the pointer, and legends that hide and show. The charts are whole without this.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  const make = (tag, text = "", className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const hide = () => {
    tip.hidden = true;
    for (const guide of document.querySelectorAll(".guide")) guide.remove();
  };

  /** Show the tip beside a point of the window, inside it. */
  const show = (content, x, y) => {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width < innerWidth - 8 ? x + 16 : x - 16 - width;
    const top = Math.min(y + 16, innerHeight - height - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  };

  // The browser's own tips come late and in one line: ours take their place.
  for (const title of document.querySelectorAll(".chart title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }

  // A finger leaves when it lifts: what it has asked for stays until the next tap.
  const leave = (event) => {
    if (event.pointerType !== "touch") hide();
  };

  for (const chart of document.querySelectorAll(".chart.heat, .chart.bars")) {
    const tell = (event) => {
      const text = event.target.dataset?.tip;
      if (text) show([make("p", text)], event.clientX, event.clientY);
      else hide();
    };
    chart.addEventListener("pointermove", tell);
    chart.addEventListener("pointerdown", tell);
    chart.addEventListener("pointerleave", leave);
  }

  /** The points that can be seen, by their place on x. */
  const columns = (chart) => {
    const found = new Map();
    for (const point of chart.querySelectorAll(".mark:not(.off) .point")) {
      const { x, y, where, value } = point.dataset;
      const key = Number(x);
      if (!found.has(key)) found.set(key, { x: key, where, points: [] });
      const mark = point.closest(".mark");
      found.get(key).points.push({ y: Number(y), value, name: mark.dataset.series, colour: getComputedStyle(mark).color });
    }
    return [...found.values()].sort((a, b) => a.x - b.x);
  };

  /** All values at one x, the highest first; the one nearest to a height y is set in bold. */
  const tellColumn = (chart, column, y, clientX, clientY) => {
    hide();
    const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const ends = { x1: column.x, x2: column.x, y1: chart.dataset.top, y2: chart.dataset.bottom, class: "guide" };
    for (const [name, value] of Object.entries(ends)) guide.setAttribute(name, value);
    chart.querySelector(".mark").before(guide);
    const points = [...column.points].sort((a, b) => a.y - b.y);
    const nearest = y === null ? null : points.reduce((a, b) => (Math.abs(b.y - y) < Math.abs(a.y - y) ? b : a));
    const table = make("table");
    for (const point of points) {
      const row = table.insertRow();
      if (point === nearest && points.length > 1) row.className = "nearest";
      const dot = make("i");
      dot.style.background = point.colour;
      row.insertCell().append(dot, point.name);
      row.insertCell().textContent = point.value;
    }
    show([make("p", column.where), table], clientX, clientY);
  };

  for (const chart of document.querySelectorAll(".chart.lines")) {
    let place = -1;
    const tell = (event) => {
      const all = columns(chart);
      if (!all.length) return hide();
      const matrix = chart.getScreenCTM().inverse();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
      const column = all.reduce((a, b) => (Math.abs(b.x - at.x) < Math.abs(a.x - at.x) ? b : a));
      tellColumn(chart, column, at.y, event.clientX, event.clientY);
    };
    chart.addEventListener("pointermove", tell);
    chart.addEventListener("pointerdown", tell);
    chart.addEventListener("pointerleave", leave);
    chart.tabIndex = 0;
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const all = columns(chart);
      if (!all.length) return;
      place = Math.min(Math.max(place + step, 0), all.length - 1);
      const point = new DOMPoint(all[place].x, Number(chart.dataset.top)).matrixTransform(chart.getScreenCTM());
      tellColumn(chart, all[place], null, point.x, point.y);
    });
  }

  // All of a panel that is a method's own is the method's.
  const names = (mark) => [mark.dataset.series, mark.closest(".panel")?.dataset.of];

  for (const button of document.querySelectorAll("[data-toggle]")) {
    const figure = button.closest("figure");
    const marks = figure.querySelectorAll("[data-series]");
    const faint = (on) => {
      for (const mark of marks) mark.classList.toggle("faint", on && !names(mark).includes(button.dataset.toggle));
    };
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
      // A mark may be that of two buttons: it is hidden while one of them is off.
      const off = [...figure.querySelectorAll("[aria-pressed=false]")].map((other) => other.dataset.toggle);
      for (const mark of marks) mark.classList.toggle("off", names(mark).some((name) => off.includes(name)));
      faint(false);
    });
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") faint(button.getAttribute("aria-pressed") === "true");
    });
    button.addEventListener("pointerleave", () => faint(false));
  }

  addEventListener("scroll", hide, { passive: true });
  addEventListener("pointerdown", (event) => {
    if (!event.target.closest?.(".chart")) hide();
  });
})();
