// Views of functions: hot loops, and patched code.
const HOT = 200;
// Blocks by function, in the order of their addresses.
function byFunction() {
  const found = new Map();
  for (const block of everyBlock) {
    const f = B.function[block];
    if (found.has(f)) found.get(f).push(block); else found.set(f, [block]);
  }
  for (const blocks of found.values()) blocks.sort((a, b) => B.start[a] - B.start[b]);
  return found;
}
// A table of functions, the largest first; each leads to its code.
function functionTable(about, rows, titles, none) {
  const out = el('div'), most = rows.reduce((most, {sum}) => Math.max(most, sum), 0) || 1;
  const line = ({f, blocks, figures, sum}) => {
    const open = el('button', {className: 'link', textContent: functionName(f), title: functionName(f)});
    open.onclick = () => { out.replaceChildren(listing(f, blocks)); out.scrollIntoView(); };
    return el('tr', {}, el('td', {className: 'name'}, open), el('td', {className: 'name', textContent: moduleNames[F.module[f]]}),
      ...figures.map(textContent => el('td', {textContent})), el('td', {textContent: amount(sum)}),
      el('td', {textContent: (100 * sum / (whole || 1)).toFixed(2)}), bar(sum / most));
  };
  const heads = ['function', 'module', ...titles, 'amount', '% of all', 'share'].map((textContent, i) =>
    el('th', {textContent, scope: 'col', className: i < 2 ? 'name' : ''}));
  const table = el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows.slice(0, HOT).map(line)));
  return el('div', {}, el('p', {className: 'soft', textContent: about}), rows.length ? el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Functions'}, table)
    : el('p', {textContent: none}), out);
}
const sumOf = blocks => blocks.reduce((sum, block) => sum + amountOf(block), 0);
function patched() {
  const rows = [...byFunction()].map(([f, blocks]) => ({f, blocks, versions: new Set(blocks.map(block => B.since[block])).size}))
    .filter(({versions}) => 1 < versions).map(row => ({...row, sum: sumOf(row.blocks), figures: [row.versions]})).sort((a, b) => b.sum - a.sum);
  return functionTable('Functions whose code was patched during the run, such as by static keys, ftrace and kprobes.', rows, ['versions'],
    'No code that ran was patched during the run.');
}
function hotLoops() {
  const rows = [];
  for (const [f, blocks] of byFunction()) {
    const starts = new Map(blocks.map(block => [B.start[block] - F.start[f], block])), ends = new Map();
    for (const block of blocks) {
      const {offset, target} = instructions(block).at(-1);
      if (target <= offset && starts.has(target)) ends.set(target, Math.max(offset, ends.get(target) || 0));
    }
    for (const [from, to] of ends) {
      const body = blocks.filter(block => from <= B.start[block] - F.start[f] && B.start[block] - F.start[f] <= to);
      rows.push({f, blocks, sum: sumOf(body), figures: [`+0x${from.toString(16)} to +0x${to.toString(16)}`, amount(B.count[starts.get(from)])]});
    }
  }
  rows.sort((a, b) => b.sum - a.sum);
  return functionTable(`The ${HOT} hottest loops: code from the target of a branch back to that branch, with how often the first block ran. ` +
    'Inner loops are part of outer ones.', rows, ['loop', 'first block'], 'No loop was seen.');
}
