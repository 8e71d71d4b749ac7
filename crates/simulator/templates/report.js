"use strict";
// Under the pointer, the legend's figures become those of the sample at the cross line; a name pointed
// at in the legend brings out its line.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const starts = data.runs.flatMap((run) => run.samples.slice(0, 1).map((sample) => sample.at_ms));
  const start = starts.reduce((a, b) => Math.min(a, b), Infinity);
  const place = (sample) => (data.timed ? sample.at_ms - start : sample.arrived_pct);
  const lastUpTo = (samples, x) => {
    let low = 0;
    let high = samples.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (place(samples[middle]) <= x) low = middle + 1;
      else high = middle;
    }
    return samples[Math.max(low - 1, 0)];
  };
  for (const plot of document.querySelectorAll("svg[data-key]")) {
    const figure = plot.closest("figure");
    const when = figure.querySelector(".when");
    const outputs = [...figure.querySelectorAll("output")];
    const rest = outputs.map((output) => output.textContent);
    const cross = plot.querySelector(".cross");
    const [lo, hi, left, right, unit] = ["lo", "hi", "left", "right", "xUnit"].map((key) => Number(plot.dataset[key]));
    const decimals = plot.dataset.unit === "" ? 0 : 1;
    const show = (value) => value == null ? "–" : value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + plot.dataset.unit;
    let share = 1;
    const point = (to) => {
      share = Math.min(Math.max(to, 0), 1);
      const x = lo + share * (hi - lo);
      cross.setAttribute("x1", left + share * (right - left));
      cross.setAttribute("x2", left + share * (right - left));
      plot.classList.add("on");
      when.textContent = `at ${(x / unit).toFixed(1)} ${plot.dataset.xName}`;
      data.runs.forEach((run, index) => {
        const sample = lastUpTo(run.samples, x);
        outputs[index].textContent = show(sample && sample[plot.dataset.key]);
      });
    };
    const release = () => {
      plot.classList.remove("on");
      when.textContent = when.dataset.rest;
      outputs.forEach((output, index) => { output.textContent = rest[index]; });
    };
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      const width = plot.viewBox.baseVal.width;
      point((((event.clientX - box.left) / box.width) * width - left) / (right - left));
    };
    [...figure.querySelectorAll("li")].forEach((entry, index) => {
      const line = plot.querySelector(`[data-run="${index}"]`);
      const choose = (on) => () => { plot.classList.toggle("one", on); line?.classList.toggle("chosen", on); };
      entry.addEventListener("pointerenter", choose(true));
      entry.addEventListener("pointerleave", choose(false));
    });
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", release);
    plot.addEventListener("blur", release);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (step) { event.preventDefault(); point(share + step); }
      else if (event.key === "Escape") release();
    });
  }
})();
