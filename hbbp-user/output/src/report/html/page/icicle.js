// The tree ring > module > function > block as an icicle: width is the amount, colours are the classes.
const DEPTH = 4;
function tree() {
  const node = (name, parent) => ({name, sum: 0, children: new Map(), parent, depth: parent ? parent.depth + 1 : 0});
  const root = node('all');
  for (const block of everyBlock) {
    const f = B.function[block], sum = amountOf(block);
    let at = root; at.sum += sum;
    for (const [name, key] of [[place.ring(block), B.ring[block]], [place.module(block), moduleOf(block)], [functionName(f), f]]) {
      let child = at.children.get(key);
      if (!child) at.children.set(key, child = node(name, at));
      at = child; at.sum += sum;
    }
    (at.blocks ||= []).push(block);
    at.f = f;
  }
  const sort = node => {
    if (node.blocks) node.children = null;
    else { node.children = [...node.children.values()].sort((a, b) => b.sum - a.sum); node.children.forEach(sort); }
  };
  sort(root);
  return root;
}
// The blocks of a function become nodes when they are shown.
function children(node) {
  if (!node.children && node.depth < DEPTH) {
    const offset = block => B.start[block] - F.start[node.f];
    node.children = node.blocks.map(block => ({name: '+0x' + offset(block).toString(16), sum: amountOf(block), blocks: [block], f: node.f,
      parent: node, depth: DEPTH})).sort((a, b) => b.sum - a.sum);
  }
  return node.children || [];
}
function classes(node, name) {
  if (node.by !== name) {
    const sums = new Map();
    if (node.blocks) addByClass(sums, node.blocks, name);
    else for (const child of node.children) for (const [key, sum] of classes(child, name)) sums.set(key, (sums.get(key) || 0) + sum);
    node.by = name; node.classes = sums;
  }
  return node.classes;
}
const HOTTEST = 12;
// The functions below a node.
const functionsOf = node => node.f !== undefined ? [node] : node.children.flatMap(functionsOf);
function hottest(node, select) {
  const functions = functionsOf(node).sort((a, b) => b.sum - a.sum), most = functions[0]?.sum || 1;
  const line = one => {
    const open = el('button', {className: 'link', textContent: one.name, title: one.name}); open.onclick = () => select(one);
    return el('tr', {}, el('td', {className: 'name'}, open), el('td', {className: 'name', textContent: one.parent.name}),
      el('td', {textContent: one.parent.parent.name}), el('td', {textContent: amount(one.sum)}),
      el('td', {textContent: (100 * one.sum / (whole || 1)).toFixed(2)}), bar(one.sum / most));
  };
  const heads = ['function', 'module', 'ring', 'amount', '% of all', 'share'].map((textContent, i) =>
    el('th', {textContent, scope: 'col', className: i < 2 ? 'name' : ''}));
  return el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Hottest functions'},
    el('h2', {textContent: `Hottest of ${group.format(functions.length)} functions`}),
    el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...functions.slice(0, HOTTEST).map(line))));
}

function background({name, colours}, node) {
  const stops = []; let at = 0;
  for (const [c, sum] of sorted(classes(node, name)).slice(0, 12)) {
    const to = at + 100 * sum / (node.sum || 1);
    stops.push(`${colours.of(c)} ${at.toFixed(1)}% ${to.toFixed(1)}%`); at = to;
  }
  return `linear-gradient(90deg, ${stops.join(', ')}, ${OTHERS} ${at.toFixed(1)}%)`;
}
function say({name, about}, node) {
  const one = node.depth === DEPTH ? node.blocks[0] : undefined;
  const error = one === undefined ? '' : ` ± ${amount(B.error[one] * B.size[one])}`, source = one === undefined ? '' : ', by ' + place.source(one);
  const parts = sorted(classes(node, name)).slice(0, 5).map(([c, sum]) => `${c} ${percent(sum / (node.sum || 1))}`);
  about.textContent = `${node.name}: ${amount(node.sum)}${error}, ${percent(node.sum / (whole || 1))} of all${source}; ${parts.join(', ')}`;
}
// The cells of a node and of all below it that are wide enough, one row for each depth.
const ROW = 26, NARROWEST = 2;
function cellsOf(chart, node, left, wide, cells) {
  const row = node.depth - chart.zoom.depth;
  const put = (cell, left, wide, row) => {
    cell.style.left = left + 'px'; cell.style.width = wide + 'px'; cell.style.top = ROW * row + 'px'; cells.push(cell);
  };
  const cell = el('button', {textContent: wide > 24 ? node.name : '', tabIndex: row ? -1 : 0});
  cell.style.background = background(chart, node);
  cell.setAttribute('aria-label', `${node.name}, ${percent(node.sum / (whole || 1))}`);
  if (chart.wanted && node.name.toLowerCase().includes(chart.wanted)) cell.className = 'match';
  cell.onfocus = cell.onmouseenter = () => say(chart, node);
  cell.onclick = () => select(chart, node);
  put(cell, left, wide, row);
  let x = left, shown = 0;
  for (const child of children(node)) {
    const w = wide * child.sum / (node.sum || 1);
    if (w < NARROWEST) break;
    cellsOf(chart, child, x, w, cells); x += w; shown += 1;
  }
  const rest = children(node).length - shown, free = left + wide - x;
  if (rest && NARROWEST <= free) put(el('div', {className: 'more', title: `${rest} smaller ones`, textContent: free > 40 ? `+${rest}` : ''}), x, free, row + 1);
  return cells;
}
function draw(chart) {
  const {frame, crumbs, zoom} = chart, path = [];
  chart.drawn = frame.clientWidth || 900;
  frame.style.height = ROW * (DEPTH + 1 - zoom.depth) + 'px';
  frame.replaceChildren(...cellsOf(chart, zoom, 0, chart.drawn, []));
  for (let node = zoom; node; node = node.parent) path.unshift(node);
  crumbs.replaceChildren(...path.map(node => {
    const step = el('button', {textContent: node.name}); step.onclick = () => select(chart, node); return step;
  }));
}
// Looks into a node: below the icicle is the code of a function, or the hottest functions of all else.
function zoomTo(chart, node) {
  chart.zoom = node;
  const shown = node.f === undefined ? hottest(node, one => select(chart, one))
    : listing(node.f, (node.depth === DEPTH ? node.parent : node).blocks);
  if (chart.below.firstChild !== shown) chart.below.replaceChildren(shown);
}
function select(chart, node) {
  zoomTo(chart, node); draw(chart); say(chart, node);
  if (node.f !== undefined) history.replaceState(null, '', '#function=' + encodeURIComponent(functionName(node.f)));
  chart.frame.firstChild.focus();
}
function keys(chart, event) {
  const cells = [...chart.frame.querySelectorAll('button')], at = cells.indexOf(document.activeElement);
  const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  const out = (event.key === 'Escape' || event.key === 'Backspace') && chart.zoom.parent;
  if (step && cells[at + step]) cells[at + step].focus(); else if (out) select(chart, out); else return;
  event.preventDefault();
}
function searchField(chart) {
  const field = el('input', {type: 'search', placeholder: 'function or module'});
  const matches = node => node.depth && node.depth < DEPTH && node.name.toLowerCase().includes(chart.wanted);
  const found = node => matches(node) ? node : node.depth < DEPTH - 1 && node.children.reduce((one, child) => one || found(child), null);
  field.oninput = () => {
    chart.wanted = field.value.toLowerCase(); draw(chart);
    chart.about.textContent = chart.wanted ? `${functionsOf(TREE).filter(matches).length} functions match; Enter shows the first` : '';
  };
  field.onkeydown = event => {
    const one = event.key === 'Enter' && chart.wanted && found(TREE);
    if (one) select(chart, one);
  };
  return el('label', {}, 'Search ', field);
}
let TREE;
function icicle(named) {
  TREE ||= tree();
  const chart = {zoom: TREE, name: colourBy, colours: palette(colourBy), wanted: '',
    frame: el('div', {className: 'icicle', role: 'group', 'aria-label': 'Icicle'}), crumbs: el('div', {className: 'crumbs'}),
    about: el('p', {className: 'about soft', 'aria-live': 'polite'}), below: el('div')};
  const {frame, crumbs, about, below} = chart;
  frame.onkeydown = event => keys(chart, event);
  const one = functionsOf(TREE).filter(node => node.name === named).sort((a, b) => b.sum - a.sum)[0];
  if (named !== undefined && !one) about.textContent = 'No function that ran is called ' + named + '.';
  zoomTo(chart, one || TREE);
  addEventListener(NEW_COLOURS, () => {
    if (frame.isConnected) { chart.name = colourBy; chart.colours = palette(colourBy); draw(chart); }
  });
  // To draw changes the height, which an observer may not do before its frame ends.
  const again = () => { if (frame.isConnected && frame.clientWidth !== chart.drawn) requestAnimationFrame(() => draw(chart)); };
  new ResizeObserver(again).observe(frame);
  const view = el('div', {},
    el('p', {className: 'soft', textContent: `Width: ${D.head.unitWords}. Choose a part to look into it; arrow keys move, Escape goes back.`}),
    el('div', {className: 'tools'}, searchField(chart)), crumbs, frame, about, below);
  view.addEventListener('show', () => draw(chart));
  return view;
}
