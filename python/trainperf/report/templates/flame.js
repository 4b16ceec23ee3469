{# Zoom, search and the graph turned around. They read without it; what it needs on the page, it makes itself. #}
"use strict";
for (const svg of document.querySelectorAll("svg.flame")) {
  const figure = svg.parentNode, space = svg.namespaceURI, height = 20;
  const make = (name, parent, text) => {
    const made = document.createElement(name);
    made.textContent = text || "";
    parent.append(made);
    return made;
  };
  const draw = (name, parent, values, text) => {
    const drawn = document.createElementNS(space, name);
    for (const a in values) drawn.setAttribute(a, values[a]);
    drawn.textContent = text || "";
    parent.append(drawn);
    return drawn;
  };
  const frame = e => {
    const at = name => parseFloat(e.getAttribute(name));
    const words = e.querySelector("title");
    const f = {e, x: at("x"), y: at("y"), w: at("width"), words: words.textContent};
    if (e.localName === "rect") { // too narrow for its name, until it is zoomed into
      const box = f.e = draw("svg", svg, {x: f.x + "%", y: f.y, width: f.w + "%"});
      for (const a of ["x", "y"]) e.removeAttribute(a); // how large it is in there, the style says
      box.append(words, e);
      f.name = draw("text", box, {}, f.words.split(/ \(|: /)[0]);
    }
    return f;
  };
  const callers = ({names, kinds, rows}) => {
    const x = [0]; // by depth, where the next one begins
    return rows.map(([depth, name, share, count]) => {
      const place = {x: x[depth] / 100 + "%", y: height * depth, width: share / 100 + "%"};
      const e = draw("rect", svg, {...place, class: kinds[name]});
      draw("title", e, {}, `${names[name]}: ${(share / 100).toFixed(1)}%, ${count} sample${count === 1 ? "" : "s"}`);
      x[depth + 1] = x[depth];
      x[depth] += share;
      return frame(e);
    });
  };
  const about = [...svg.children].filter(e => !e.hasAttribute("x")), called = [...svg.children].filter(e => e.hasAttribute("x")).map(frame);
  const tools = document.createElement("div"), label = make("label", tools, "Search "), search = make("input", label);
  const whole = make("button", tools, "Show all"), turn = make("button", tools, "Bottom-up");
  const told = make("output", tools, "Click a frame to zoom in, or: arrows, Enter, Escape");
  tools.className = "tools";
  search.type = "search";
  whole.type = turn.type = "button";
  figure.before(tools);
  const near = 1e-3;
  let frames = called, calling, shown = frames[0], here = shown;
  const zoom = to => {
    shown = to;
    for (const f of frames) {
      const left = Math.max(0, (f.x - to.x) / to.w), right = Math.min(1, (f.x + f.w - to.x) / to.w);
      f.e.style.display = right - left > 1e-4 ? "" : "none";
      f.e.setAttribute("x", 100 * left + "%");
      f.e.setAttribute("width", 100 * Math.max(0, right - left) + "%");
      if (f.name) f.name.style.display = right - left > .018 ? "" : "none";
    }
    whole.disabled = to === frames[0];
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
  whole.addEventListener("click", () => zoom(frames[0]));
  turn.setAttribute("aria-pressed", false);
  turn.addEventListener("click", () => {
    const up = frames === called;
    frames = up ? calling ||= callers(JSON.parse(figure.querySelector("script").textContent)) : called;
    turn.setAttribute("aria-pressed", up);
    svg.replaceChildren(...about, ...frames.map(f => f.e));
    svg.setAttribute("height", height + Math.max(...frames.map(f => f.y)));
    here = frames[0];
    zoom(here);
    find();
    if (!search.value) told.textContent = up ? "Each function by its own time; below it, who called it" : "By what calls what";
  });
  figure.addEventListener("keydown", event => {
    const level = row(here.y), at = level.indexOf(here);
    const does = {
      ArrowUp: () => go(row(here.y - height).find(f => inside(here, f))),
      ArrowDown: () => go(row(here.y + height).filter(f => inside(f, here)).sort((a, b) => b.w - a.w)[0]),
      ArrowLeft: () => go(level[at - 1]),
      ArrowRight: () => go(level[at + 1]),
      Enter: () => zoom(here),
      Escape: () => zoom(frames[0]),
    }[event.key];
    if (!does || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    does();
  });
  zoom(shown);
}
