{# Zoom and search for flame graphs. They read without it; what it needs on the page, it makes itself. #}
"use strict";
for (const svg of document.querySelectorAll("svg.flame")) {
  const figure = svg.parentNode, space = svg.namespaceURI;
  const make = (name, parent, text) => {
    const made = document.createElement(name);
    made.textContent = text || "";
    parent.append(made);
    return made;
  };
  const frames = [...svg.children].filter(e => e.hasAttribute("x")).map(e => {
    const at = name => parseFloat(e.getAttribute(name));
    const words = e.querySelector("title");
    const f = {e, x: at("x"), y: at("y"), w: at("width"), words: words.textContent};
    if (e.localName === "rect") { // too narrow for its name, until it is zoomed into
      const box = f.e = document.createElementNS(space, "svg"), name = document.createElementNS(space, "text");
      for (const a of ["x", "y", "width", "height"]) box.setAttribute(a, e.getAttribute(a));
      e.replaceWith(box);
      for (const a of ["x", "y"]) e.removeAttribute(a);
      e.setAttribute("width", "100%");
      name.setAttribute("x", 4);
      name.setAttribute("y", 14);
      name.textContent = f.words.split(/ \(|: /)[0];
      box.append(words, e, name);
      f.name = name;
    }
    return f;
  });
  const tools = document.createElement("div"), label = make("label", tools, "Search "), search = make("input", label);
  const whole = make("button", tools, "Show all"), told = make("output", tools, "Click a frame to zoom in, or: arrows, Enter, Escape");
  tools.className = "tools";
  search.type = "search";
  whole.type = "button";
  figure.before(tools);
  const near = 1e-3, root = frames[0];
  let shown = root, here = root;
  const zoom = to => {
    shown = to;
    for (const f of frames) {
      const left = Math.max(0, (f.x - to.x) / to.w), right = Math.min(1, (f.x + f.w - to.x) / to.w);
      f.e.style.display = right - left > 1e-4 ? "" : "none";
      f.e.setAttribute("x", 100 * left + "%");
      f.e.setAttribute("width", 100 * Math.max(0, right - left) + "%");
      if (f.name) f.name.style.display = right - left > .018 ? "" : "none";
    }
    whole.disabled = to === root;
  };
  const go = f => {
    if (!f) return;
    here.e.classList.remove("here");
    here = f;
    here.e.classList.add("here");
    told.textContent = f.words;
  };
  const inside = (a, b) => a.x >= b.x - near && a.x + a.w <= b.x + b.w + near;
  const visible = f => f.x + f.w > shown.x + near && f.x < shown.x + shown.w - near;
  const row = y => frames.filter(f => f.y === y && visible(f));
  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    let end = -1, share = 0, count = 0;
    svg.classList.toggle("searched", !!wanted);
    const hits = frames.filter(f => f.e.classList.toggle("hit", !!wanted && f.words.toLowerCase().includes(wanted)));
    for (const f of hits.sort((a, b) => a.x - b.x || b.w - a.w)) {
      count++;
      if (f.x >= end - near) share += f.w, end = f.x + f.w; // not what lies within a hit
    }
    told.textContent = wanted ? `${count} of ${frames.length} frames, ${share.toFixed(1)}% of the time` : "";
  };
  const hit = event => frames.find(f => f.e.contains(event.target));
  svg.addEventListener("click", event => hit(event) && (go(hit(event)), zoom(here)));
  svg.addEventListener("mousemove", event => {
    if ((event.movementX || event.movementY) && hit(event)) told.textContent = hit(event).words; // not when frames move
  });
  search.addEventListener("input", find);
  whole.addEventListener("click", () => zoom(root));
  figure.addEventListener("keydown", event => {
    const height = 20, level = row(here.y), at = level.indexOf(here);
    const does = {
      ArrowUp: () => go(row(here.y - height).find(f => inside(here, f))),
      ArrowDown: () => go(row(here.y + height).filter(f => inside(f, here)).sort((a, b) => b.w - a.w)[0]),
      ArrowLeft: () => go(level[at - 1]),
      ArrowRight: () => go(level[at + 1]),
      Enter: () => zoom(here),
      Escape: () => zoom(root),
    }[event.key];
    if (!does || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    does();
  });
  zoom(root);
}
