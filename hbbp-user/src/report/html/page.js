'use strict';
// Draws the page from the table in #data: blocks with their executions, their instructions, and the classes of these. All
// names are set as text, never as markup, as others chose them.
(async () => {
const RINGS = ['kernel', 'user'];
const PLACES = ['ring', 'module', 'function', 'source'];
// Okabe and Ito's palette, which colour-blind people tell apart; the last is for what has no colour of its own.
const COLOURS = ['#56b4e9', '#e69f00', '#6cc5a1', '#f0e442', '#d98cb3', '#e0784a', '#9db8e8', '#c9b18a'];
const OTHERS = '#b8bec5';
const VIEWS = [
  ['Icicle', icicle],
  ['Pivot', () => pivot({rows: ['mnemonic'], cols: 'ring', filter: ''})],
  ['Modules', () => pivot({rows: ['module'], cols: 'ring', filter: ''})],
  ['Vectorization', () => pivot({rows: ['extension', 'packing'], cols: 'ring', filter: 'packing!=none',
    about: 'Vector instructions by extension: packed ones work on all elements of a register, scalar ones on one.'})],
  ['Latency', () => pivot({rows: ['mnemonic', 'function'], cols: 'ring', filter: 'long-latency!=(none)',
    about: 'Instructions of ten cycles or more, and where they run.'})],
  ['Synchronization', () => pivot({rows: ['mnemonic', 'function'], cols: 'ring', filter: 'synchronization!=(none)',
    about: 'Instructions that synchronize threads, and where they run.'})],
  ['Memory', () => pivot({rows: ['memory', 'category'], cols: 'ring', filter: '',
    about: 'What instructions do with memory, the stack included.'})],
  ['Branches', () => pivot({rows: ['flow'], cols: 'ring', filter: 'flow!=next',
    about: 'Instructions that may pass control elsewhere than to the next one.'})],
];

const el = (tag, props = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key in node && !key.startsWith('aria')) node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
const $ = id => document.getElementById(id);
const group = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
function amount(value) {
  // Samples are spread over the instructions of their block.
  if (0 < value && value < 100 && value !== Math.round(value)) return value.toFixed(value < 10 ? 2 : 1);
  if (value < 1e7) return group.format(Math.round(value));
  const scale = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M']].find(([by]) => by <= value);
  return (value / scale[0]).toPrecision(5) + ' ' + scale[1];
}
const percent = share => (100 * share).toFixed(2) + ' %';

async function table() {
  const packed = Uint8Array.from(atob($('data').textContent), c => c.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(plain).text());
}

let D;
try { D = await table(); } catch (error) {
  $('view').append(el('p', {className: 'warning', textContent: 'The data of this page cannot be read: ' + error}));
  return;
}
const S = D.strings, B = D.blocks, I = D.instructions;
const n = B.count.length;
const attribute = name => D.attributes.indexOf(name);
const classOf = (instruction, name) => S[D.forms[I.form[instruction]][attribute(name)]];
const moduleOf = block => D.functions[B.function[block]][0];
// The file's name, with the folder where two modules share it.
const files = D.modules.map(m => S[m].replace(/.*\/(?=.)/, ''));
const shortModule = m => files.filter(f => f === files[m]).length > 1 ? S[D.modules[m]] : files[m];
const functionName = f => S[D.functions[f][1]];
const place = {
  ring: block => RINGS[B.ring[block]],
  module: block => shortModule(moduleOf(block)),
  function: block => functionName(B.function[block]),
  source: block => B.method[block] ? 'LBR' : 'EBS',
};
const dimensions = [...PLACES, ...D.attributes];
const size = block => B.first[block + 1] - B.first[block];
const total = RINGS.map(() => 0);
for (let block = 0; block < n; block++) total[B.ring[block]] += B.count[block] * size(block);
const whole = total[0] + total[1];

// Amounts of some blocks by class: [class, amount], largest first.
function byClass(blocks, name) {
  const sums = new Map(), at = attribute(name);
  for (const block of blocks) for (let i = B.first[block]; i < B.first[block + 1]; i++) {
    const key = D.forms[I.form[i]][at];
    sums.set(key, (sums.get(key) || 0) + B.count[block]);
  }
  return [...sums].map(([key, sum]) => [S[key], sum]).sort((a, b) => b[1] - a[1]);
}
// Colours of the classes of an attribute: the largest have one each.
function palette(name) {
  const classes = byClass(Array(n).keys(), name).slice(0, COLOURS.length);
  const colours = new Map(classes.map(([key], i) => [key, COLOURS[i]]));
  return {colours, of: key => colours.get(key) || OTHERS};
}
function legend(colours) {
  const entries = [...colours.colours].map(([key, colour]) => {
    const box = el('i'); box.style.background = colour;
    return el('span', {}, box, key);
  });
  const box = el('i'); box.style.background = OTHERS;
  return el('div', {className: 'legend'}, ...entries, el('span', {}, box, 'others'));
}

function head() {
  $('run').textContent = D.head.run;
  $('unit').textContent = D.head.unit;
  for (const text of D.head.warnings) $('warnings').append(el('p', {className: 'warning', textContent: text}));
  for (const [name, value] of D.head.facts) $('facts').append(el('dt', {textContent: name}), el('dd', {textContent: value}));
  rings('category');
  const theme = el('button', {textContent: 'Light or dark'});
  theme.onclick = () => {
    const dark = getComputedStyle(document.documentElement).colorScheme.trim() === 'dark' ||
      (!document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
    document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  };
  $('foot').append(theme, ' ', el('span', {className: 'soft', textContent: D.head.made}));
}
function rings(name) {
  const colours = palette(name), lines = [];
  RINGS.forEach((ring, r) => {
    const blocks = [...Array(n).keys()].filter(block => B.ring[block] === r);
    const classes = byClass(blocks, name), bar = el('div', {className: 'bar'});
    const words = classes.slice(0, 6).map(([key, sum]) => key + ' ' + percent(sum / (total[r] || 1)));
    bar.setAttribute('role', 'img');
    bar.setAttribute('aria-label', `${ring} by ${name}: ${words.join(', ') || 'nothing'}`);
    for (const [key, sum] of classes) {
      const share = sum / (total[r] || 1);
      const part = el('span', {textContent: share > 0.06 ? `${key} ${percent(share)}` : '', title: `${key}: ${percent(share)}`});
      part.style.width = 100 * share + '%'; part.style.background = colours.of(key);
      bar.append(part);
    }
    lines.push(el('div', {className: 'ring'}, el('div', {}, ring, el('br'),
      el('span', {className: 'soft', textContent: `${amount(total[r])}, ${percent(total[r] / (whole || 1))}`})), bar));
  });
  const choose = el('select', {id: 'ring-class'});
  for (const a of D.attributes) choose.append(el('option', {textContent: a, selected: a === name}));
  choose.onchange = () => rings(choose.value);
  $('rings').replaceChildren(...lines, el('div', {className: 'tools'}, el('label', {}, 'Bars and colours by ', choose)), legend(colours));
}

function tabs() {
  VIEWS.forEach(([name, show], i) => {
    const tab = el('button', {textContent: name, id: 'tab' + i});
    tab.setAttribute('role', 'tab'); tab.setAttribute('aria-controls', 'view');
    tab.onclick = () => {
      open(i, show());
      history.replaceState(null, '', '#' + name.toLowerCase());
    };
    tab.onkeydown = event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (step) $('tab' + (i + step + VIEWS.length) % VIEWS.length).focus();
    };
    $('tabs').append(tab);
  });
  addEventListener('hashchange', follow);
  follow();
}
// Opens what the address names: `#pivot`, or `#function=NAME` for the code of the hottest function of that name.
function follow() {
  const [name, value] = decodeURIComponent(location.hash.slice(1)).split(/=(.*)/s);
  const at = VIEWS.findIndex(([title]) => title.toLowerCase() === name);
  if (name !== 'function') return open(Math.max(at, 0), VIEWS[Math.max(at, 0)][1]());
  open(0, icicle(value));
}
function open(i, content) {
  [...$('tabs').children].forEach((tab, k) => {
    tab.setAttribute('aria-selected', String(k === i)); tab.tabIndex = k === i ? 0 : -1;
  });
  $('view').setAttribute('aria-labelledby', 'tab' + i);
  $('view').replaceChildren(content);
}

// The tree ring > module > function > block, largest children first.
function tree() {
  const root = {name: 'all', sum: 0, blocks: [], children: new Map()};
  for (let block = 0; block < n; block++) {
    const f = B.function[block], sum = B.count[block] * size(block);
    const path = [[RINGS[B.ring[block]], B.ring[block]], [place.module(block), moduleOf(block)], [functionName(f), f],
      [B.start[block], block]];
    let node = root; node.sum += sum; node.blocks.push(block);
    for (const [name, key] of path) {
      if (!node.children.has(key)) node.children.set(key, {name, sum: 0, blocks: [], children: new Map(), parent: node, key});
      node = node.children.get(key); node.sum += sum; node.blocks.push(block);
    }
  }
  const sort = node => { node.children = [...node.children.values()].sort((a, b) => b.sum - a.sum); node.children.forEach(sort); };
  sort(root);
  return root;
}
let TREE;
function icicle(named) {
  TREE = TREE || tree();
  let zoom = TREE, name = 'category', colours = palette(name), wanted = '';
  const frame = el('div', {className: 'icicle'}), crumbs = el('div', {className: 'crumbs'}), key = el('div');
  const about = el('p', {className: 'about soft'}), code = el('div', {className: 'scroll'});
  about.setAttribute('aria-live', 'polite');
  const depth = node => node.parent ? 1 + depth(node.parent) : 0;
  function paint(node) {
    let at = 0;
    const stops = [], classes = byClass(node.blocks, name);
    for (const [c, sum] of classes) {
      const to = at + 100 * sum / (node.sum || 1);
      stops.push(`${colours.of(c)} ${at.toFixed(1)}% ${to.toFixed(1)}%`); at = to;
    }
    return {background: stops.length > 1 ? `linear-gradient(90deg, ${stops.join(', ')})` : colours.of(classes[0]?.[0]), classes};
  }
  function say(node) {
    const {classes} = paint(node), error = node.blocks.length === 1 ? ' ± ' + amount(B.error[node.blocks[0]] * size(node.blocks[0])) : '';
    const source = node.blocks.length === 1 ? ', by ' + place.source(node.blocks[0]) : '';
    about.textContent = `${node.name}: ${amount(node.sum)}${error}, ${percent(node.sum / (whole || 1))} of all${source}; ` +
      classes.slice(0, 5).map(([c, sum]) => `${c} ${percent(sum / (node.sum || 1))}`).join(', ');
  }
  function draw() {
    const width = frame.clientWidth || 900, base = depth(zoom), cells = [];
    const isMatch = node => wanted && node.name.toLowerCase().includes(wanted);
    const add = (node, left, wide) => {
      const cell = el('button', {textContent: wide > 24 ? node.name : ''});
      cell.style.left = left + 'px'; cell.style.width = Math.max(wide, 1) + 'px';
      cell.style.top = 26 * (depth(node) - base) + 'px'; cell.style.background = paint(node).background;
      cell.setAttribute('aria-label', `${node.name}, ${percent(node.sum / (whole || 1))}`);
      if (isMatch(node)) cell.className = 'match';
      cell.onfocus = cell.onmouseenter = () => say(node);
      cell.onclick = () => select(node);
      cells.push(cell);
      let x = left, shown = 0;
      for (const child of node.children) {
        const w = wide * child.sum / (node.sum || 1);
        if (w < 1) break;
        add(child, x, w); x += w; shown += 1;
      }
      const left_out = node.children.length - shown;
      if (left_out && left + wide - x >= 2) {
        const more = el('div', {className: 'more', title: `${left_out} smaller ones`, textContent: left + wide - x > 40 ? `+${left_out}` : ''});
        more.style.left = x + 'px'; more.style.width = left + wide - x + 'px'; more.style.top = 26 * (depth(node) + 1 - base) + 'px';
        cells.push(more);
      }
    };
    add(zoom, 0, width);
    frame.style.height = 26 * (5 - Math.min(base, 4)) + 'px';
    frame.replaceChildren(...cells);
    const path = []; for (let node = zoom; node; node = node.parent) path.unshift(node);
    crumbs.replaceChildren(...path.map(node => {
      const step = el('button', {textContent: node.name}); step.onclick = () => select(node); return step;
    }));
  }
  function select(node) {
    zoom = node; draw(); say(node);
    const inFunction = 3 <= depth(node);
    if (inFunction) history.replaceState(null, '', '#function=' + encodeURIComponent(functionName(B.function[node.blocks[0]])));
    code.replaceChildren(...(inFunction ? [listing(B.function[node.blocks[0]])] : []));
    frame.firstChild.focus();
  }
  const choose = el('select');
  for (const a of D.attributes) choose.append(el('option', {textContent: a, selected: a === name}));
  choose.onchange = () => { name = choose.value; colours = palette(name); key.replaceChildren(legend(colours)); draw(); };
  const search = el('input', {type: 'search', placeholder: 'function or module'});
  search.oninput = () => {
    wanted = search.value.toLowerCase(); draw();
    const found = D.functions.map((_, f) => f).filter(f => wanted && functionName(f).toLowerCase().includes(wanted));
    about.textContent = wanted ? `${found.length} functions match` : '';
  };
  search.onkeydown = event => {
    if (event.key !== 'Enter' || !wanted) return;
    const walk = node => node.parent && node.name.toLowerCase().includes(wanted) && depth(node) < 4 ? node
      : node.children.reduce((found, child) => found || walk(child), null);
    const found = walk(TREE); if (found) select(found);
  };
  frame.onkeydown = event => {
    const cells = [...frame.querySelectorAll('button')], at = cells.indexOf(document.activeElement);
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (step && cells[at + step]) { cells[at + step].focus(); event.preventDefault(); }
    if ((event.key === 'Escape' || event.key === 'Backspace') && zoom.parent) { select(zoom.parent); event.preventDefault(); }
  };
  key.append(legend(colours));
  new ResizeObserver(draw).observe(frame);
  if (named !== undefined) {
    const functions = TREE.children.flatMap(ring => ring.children).flatMap(module => module.children);
    const found = functions.filter(node => node.name === named).sort((a, b) => b.sum - a.sum)[0];
    if (found) {
      zoom = found; code.replaceChildren(listing(B.function[found.blocks[0]]));
    } else about.textContent = 'No function that ran is called ' + named + '.';
  }
  return el('div', {},
    el('p', {className: 'soft', textContent: `Width: ${D.head.unitWords}. Choose a part to look into it; arrow keys move, Escape goes back.`}),
    el('div', {className: 'tools'}, el('label', {}, 'Colour by ', choose), el('label', {}, 'Search ', search)),
    crumbs, frame, key, about, code);
}

// The code of a function with its figures; each text version apart.
function listing(f) {
  const blocks = [...Array(n).keys()].filter(block => B.function[block] === f);
  const versions = [...new Set(blocks.map(block => B.since[block]))].sort((a, b) => a - b);
  const seen = new Map();
  const parts = versions.map(since => {
    const mine = blocks.filter(block => B.since[block] === since).sort((a, b) => BigInt('0x' + B.start[a]) < BigInt('0x' + B.start[b]) ? -1 : 1);
    const most = Math.max(...mine.map(block => B.count[block]), 1);
    const rows = [];
    for (const block of mine) {
      let at = BigInt('0x' + B.start[block]);
      for (let i = B.first[block]; i < B.first[block + 1]; i++) {
        const first = i === B.first[block], text = S[I.text[i]], address = at.toString(16);
        const meter = el('div'); meter.style.width = 100 * B.count[block] / most + '%';
        const both = ['ebs', 'lbr'].map(m => B[m][block] === null ? '' : amount(B[m][block]));
        const other = seen.get(address);
        rows.push(el('tr', {className: (first ? 'leader ' : '') + (other !== undefined && other !== text ? 'changed' : '')},
          el('td', {textContent: first ? amount(B.count[block]) : ''}), el('td', {textContent: first ? '±' + amount(B.error[block]) : ''}),
          el('td', {textContent: first ? both[0] : ''}), el('td', {textContent: first ? both[1] : ''}),
          el('td', {textContent: first ? place.source(block) : ''}), el('td', {className: 'meter'}, first ? meter : ''),
          el('td', {textContent: address}), el('td', {className: 'text', textContent: text})));
        seen.set(address, text); at += BigInt(I.len[i]);
      }
    }
    const heads = [D.head.unitWords, 'error', 'EBS', 'LBR', 'source', '', 'address'].map(name => el('th', {textContent: name}));
    heads.push(el('th', {className: 'name', textContent: 'instruction'}));
    return el('div', {}, versions.length > 1 ? el('p', {textContent: since ? `text since ${(since / 1e9).toFixed(3)} s` : 'text at the start'}) : '',
      el('table', {className: 'code'}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows)));
  });
  return el('div', {}, el('h2', {textContent: `${functionName(f)} in ${S[D.modules[D.functions[f][0]]]}`}),
    versions.length > 1 ? el('p', {textContent: 'This code was patched during the run; what differs from the version before is marked.'}) : '',
    el('div', {className: 'versions'}, ...parts));
}

// `a=b* c!=d`: all must hold; `*` and `?` stand for any text and any character.
function filterOf(text) {
  const tests = text.split(/[\s,]+/).filter(Boolean).map(term => {
    const found = /^([a-z0-9-]+)(!?=)(.*)$/.exec(term);
    if (!found || !dimensions.includes(found[1])) throw new Error(`unknown filter ${term}; expected such as extension=AVX* or ring!=user`);
    const pattern = new RegExp('^' + found[3].replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*/g, '.*').replace(/\?/g, '.') + '$', 'i');
    return [found[1], found[2] === '=', pattern];
  });
  return value => tests.every(([name, wanted, pattern]) => pattern.test(value(name)) === wanted);
}
function pivot(start) {
  const state = {rows: [...start.rows], cols: start.cols, filter: start.filter, sort: 'total', top: 200};
  const out = el('div', {className: 'scroll'}), problem = el('p', {className: 'warning', hidden: true});
  function sums() {
    const passes = filterOf(state.filter), rows = new Map(), cols = new Map();
    for (let block = 0; block < n; block++) for (let i = B.first[block]; i < B.first[block + 1]; i++) {
      const value = name => place[name] ? place[name](block) : classOf(i, name);
      if (!passes(value)) continue;
      const key = state.rows.map(value).join('\u0000'), col = state.cols ? value(state.cols) : '';
      if (!rows.has(key)) rows.set(key, {key: key.split('\u0000'), total: 0, cells: new Map()});
      const row = rows.get(key);
      row.total += B.count[block]; row.cells.set(col, (row.cells.get(col) || 0) + B.count[block]);
      cols.set(col, (cols.get(col) || 0) + B.count[block]);
    }
    return {rows: [...rows.values()], cols: [...cols].sort((a, b) => b[1] - a[1])};
  }
  function draw() {
    let found;
    try { found = sums(); problem.hidden = true; } catch (error) { problem.textContent = error.message; problem.hidden = false; return; }
    const {rows, cols} = found, sum = cols.reduce((all, [, s]) => all + s, 0);
    const of = row => state.sort === 'total' ? row.total : row.cells.get(state.sort) || 0;
    rows.sort((a, b) => of(b) - of(a) || (a.key < b.key ? -1 : 1));
    const sortable = (name, title) => {
      const button = el('button', {textContent: title}); button.onclick = () => { state.sort = name; draw(); };
      return el('th', {'aria-sort': state.sort === name ? 'descending' : 'none'}, button);
    };
    const named = state.cols ? cols : [];
    const heads = [...state.rows.map(name => el('th', {className: 'name', textContent: name})),
      ...named.flatMap(([name]) => [sortable(name, name), el('th', {textContent: '%'})]), sortable('total', 'total'), el('th', {textContent: '%'}), el('th')];
    const line = (row, cell) => {
      const meter = el('div'); meter.style.width = 100 * row.total / (rows[0]?.total || 1) + '%';
      return el('tr', {}, ...row.key.map(text => el(cell, {className: 'name', textContent: text, title: text})),
        ...named.flatMap(([name, s]) => [el('td', {textContent: amount(row.cells.get(name) || 0)}), el('td', {textContent: ((100 * (row.cells.get(name) || 0)) / (s || 1)).toFixed(2)})]),
        el('td', {textContent: amount(row.total)}), el('td', {textContent: (100 * row.total / (sum || 1)).toFixed(2)}), el('td', {className: 'meter'}, meter));
    };
    const all = el('tr', {id: 'pivot-total'}, el('td', {className: 'name', colSpan: state.rows.length, textContent: `total of ${rows.length} rows`}),
      ...named.flatMap(([, s]) => [el('td', {textContent: amount(s)}), el('td', {textContent: '100.00'})]),
      el('td', {textContent: amount(sum), 'data-sum': sum}), el('td', {textContent: percent(sum / (whole || 1)) + ' of all'}), el('td'));
    out.replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows.slice(0, state.top).map(row => line(row, 'td'))), el('tfoot', {}, all)));
    out.csv = () => [[...state.rows, ...named.map(([name]) => name), 'total'], ...rows.map(row => [...row.key, ...named.map(([name]) => row.cells.get(name) || 0), row.total])]
      .map(cells => cells.map(cell => /[",\n]/.test(cell) ? `"${String(cell).replace(/"/g, '""')}"` : cell).join(',')).join('\n') + '\n';
    if (rows.length === 0) out.append(el('p', {textContent: 'Nothing passes the filter.'}));
  }
  const pick = (label, value, empty, set) => {
    const select = el('select');
    if (empty) select.append(el('option', {value: '', textContent: '(none)', selected: !value}));
    for (const name of dimensions) select.append(el('option', {value: name, textContent: name, selected: name === value}));
    select.onchange = () => { set(select.value); draw(); };
    return el('label', {}, label + ' ', select);
  };
  const filter = el('input', {value: state.filter, placeholder: 'extension=AVX* ring=kernel', size: 30});
  filter.onchange = () => { state.filter = filter.value; draw(); };
  const copy = el('button', {textContent: 'Copy as CSV'});
  copy.onclick = async () => {
    const text = out.csv();
    try { await navigator.clipboard.writeText(text); } catch {
      const area = el('textarea', {value: text}); document.body.append(area); area.select(); document.execCommand('copy'); area.remove();
    }
    copy.textContent = 'Copied';
  };
  draw();
  return el('div', {}, el('p', {className: 'soft', textContent: start.about || ''}), el('div', {className: 'tools'},
    pick('Rows', state.rows[0], false, name => state.rows = [name, ...state.rows.slice(1)]),
    pick('then', state.rows[1] || '', true, name => state.rows = name ? [state.rows[0], name] : [state.rows[0]]),
    pick('Columns', state.cols, true, name => state.cols = name),
    el('label', {}, 'Filter ', filter), copy), problem, out);
}

head();
tabs();
document.documentElement.dataset.ready = 'true';
})();
