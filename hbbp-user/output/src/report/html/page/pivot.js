// Any pivot of the mix, with its filter, order and CSV.
// `a=b* c!=d`: all must hold; `*` and `?` stand for any text and any character.
function filterOf(text) {
  return text.split(/[\s,]+/).filter(Boolean).map(term => {
    const found = /^([a-z0-9-]+)(!?=)(.*)$/.exec(term);
    if (!found || !dimensions.includes(found[1])) throw new Error(`unknown filter ${term}; expected such as extension=AVX* or ring!=user`);
    const pattern = new RegExp('^' + found[3].replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*/g, '.*').replace(/\?/g, '.') + '$', 'i');
    return {name: found[1], passes: value => pattern.test(value) === (found[2] === '=')};
  });
}
// A key has two halves, that of the block and that of the instruction's class: each is found once and has a number.
function halves(count, dimensionsOf, value, names, tests) {
  const keys = [], numbers = new Map(), of = new Int32Array(count), asked = names.map(name => dimensionsOf(name) ? name : null);
  const mine = tests.filter(({name}) => dimensionsOf(name));
  for (let i = 0; i < count; i++) {
    if (!mine.every(({name, passes}) => passes(value(name, i)))) { of[i] = -1; continue; }
    const key = asked.map(name => name === null ? null : value(name, i)), text = key.join('\u0000');
    if (!numbers.has(text)) { numbers.set(text, keys.length); keys.push(key); }
    of[i] = numbers.get(text);
  }
  return {keys, of};
}
function sums({rows, cols, filter}) {
  const names = cols ? [...rows, cols] : rows, tests = filterOf(filter);
  const blocks = halves(n, name => name in place, (name, block) => place[name](block), names, tests);
  const forms = halves(D.forms.length, name => !(name in place), (name, form) => S[D.forms[form][D.attributes.indexOf(name)]], names, tests);
  const width = forms.keys.length, cells = new Map();
  for (let block = 0; block < n; block++) {
    const half = blocks.of[block];
    if (half < 0) continue;
    for (let i = first[block]; i < first[block + 1]; i++) {
      const form = forms.of[formOf[i]];
      if (0 <= form) cells.set(half * width + form, (cells.get(half * width + form) || 0) + countOf(block, i));
    }
  }
  const lines = new Map(), byCol = new Map();
  for (const [cell, sum] of cells) {
    const ofBlock = blocks.keys[Math.floor(cell / width)], ofForm = forms.keys[cell % width];
    const key = names.map((_, i) => ofBlock[i] ?? ofForm[i]), col = cols ? key.pop() : '', text = key.join('\u0000');
    let row = lines.get(text);
    if (!row) lines.set(text, row = {key, total: 0, cells: new Map()});
    row.total += sum; row.cells.set(col, (row.cells.get(col) || 0) + sum); byCol.set(col, (byCol.get(col) || 0) + sum);
  }
  return {rows: [...lines.values()], cols: [...byCol].sort((a, b) => b[1] - a[1])};
}
async function copyText(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = el('textarea', {value: text}); document.body.append(area); area.select(); document.execCommand('copy'); area.remove();
  }
}
const csvOf = lines => lines.map(cells => cells.map(cell => /[",\n]/.test(cell) ? `"${String(cell).replace(/"/g, '""')}"` : cell).join(',')).join('\n') + '\n';

function pivot(start) {
  const state = {rows: [...start.rows], cols: start.cols, filter: start.filter, sort: 'total', top: 200};
  const out = el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table'});
  const problem = el('p', {className: 'warning', role: 'alert', hidden: true});
  let csv = '';
  function draw() {
    let found;
    try { found = sums(state); problem.hidden = true; } catch (error) { problem.textContent = error.message; problem.hidden = false; return; }
    const {rows, cols} = found, sum = cols.reduce((all, [, s]) => all + s, 0), named = state.cols ? cols : [];
    const of = row => state.sort === 'total' ? row.total : row.cells.get(state.sort) || 0;
    rows.sort((a, b) => of(b) - of(a) || (a.key < b.key ? -1 : 1));
    const widest = rows.reduce((widest, row) => Math.max(widest, row.total), 0) || 1;
    const sortable = name => {
      const button = el('button', {textContent: name}); button.onclick = () => { state.sort = name; draw(); };
      return el('th', {'aria-sort': state.sort === name ? 'descending' : 'none', scope: 'col'}, button);
    };
    const title = (textContent, className = '') => el('th', {textContent, className, scope: 'col'});
    const heads = [...state.rows.map(name => title(name, 'name')), ...named.flatMap(([name]) => [sortable(name), title('%')]),
      sortable('total'), title('%'), title('share')];
    const two = (value, s) => [el('td', {textContent: amount(value)}), el('td', {textContent: (100 * value / (s || 1)).toFixed(2)})];
    const line = row => el('tr', {}, ...row.key.map(text => el('td', {className: 'name', textContent: text, title: text})),
      ...named.flatMap(([name, s]) => two(row.cells.get(name) || 0, s)), ...two(row.total, sum), bar(row.total / widest));
    const all = el('tr', {id: 'pivot-total'}, el('td', {className: 'name', colSpan: state.rows.length, textContent: `total of ${group.format(rows.length)} rows`}),
      ...named.flatMap(([, s]) => two(s, s)), el('td', {textContent: amount(sum), 'data-sum': sum}),
      el('td', {colSpan: 2, textContent: percent(sum / (whole || 1)) + ' of all'}));
    out.replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows.slice(0, state.top).map(line)), el('tfoot', {}, all)));
    if (state.top < rows.length) {
      const more = el('button', {textContent: `Show all ${group.format(rows.length)} rows`});
      more.onclick = () => { state.top = Infinity; draw(); };
      out.append(more);
    }
    csv = csvOf([[...state.rows, ...named.map(([name]) => name), 'total'],
      ...rows.map(row => [...row.key, ...named.map(([name]) => row.cells.get(name) || 0), row.total])]);
    if (rows.length === 0) out.append(el('p', {textContent: 'Nothing passes the filter.'}));
  }
  const pick = (label, values, value, set) => chooser(label, values, value, name => { set(name); draw(); });
  const filter = el('input', {value: state.filter, placeholder: 'extension=AVX* ring=kernel', size: 30});
  filter.onchange = () => { state.filter = filter.value; draw(); };
  const copy = el('button', {textContent: 'Copy as CSV'});
  copy.onclick = async () => { await copyText(csv); copy.textContent = 'Copied'; };
  draw();
  return el('div', {}, el('p', {className: 'soft', textContent: start.about || ''}), el('div', {className: 'tools'},
    pick('Rows', dimensions, state.rows[0], name => state.rows[0] = name),
    pick('then', ['', ...dimensions], state.rows[1] || '', name => state.rows.splice(1, 1, ...(name ? [name] : []))),
    pick('Columns', ['', ...dimensions], state.cols, name => state.cols = name),
    el('label', {}, 'Filter ', filter), copy), problem, out);
}
