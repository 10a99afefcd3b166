// The code of a function with its figures; each text version apart, loops marked, and what was patched.
const TEMPLATES = {};
// What the marks of a template stand for: `#` a number, `@` the name of a function.
const marks = kind => TEMPLATES[kind] ||= S[K.text[kind]].split(/([#@])/);
let BEFORE;
// Numbers and functions that the marks of all earlier blocks stand for.
function before() {
  if (BEFORE) return BEFORE;
  const numbers = new Uint32Array(n + 1), functions = new Uint32Array(n + 1);
  const count = (kind, mark) => { let c = 0; for (const part of marks(kind)) c += part === mark; return c; };
  const ofKinds = Array.from(K.text, (_, kind) => [count(kind, '#'), count(kind, '@')]);
  for (let block = 0; block < n; block++) {
    let a = numbers[block], b = functions[block];
    for (let i = first[block]; i < first[block + 1]; i++) { const [c, d] = ofKinds[I.kind[i]]; a += c; b += d; }
    numbers[block + 1] = a; functions[block + 1] = b;
  }
  return BEFORE = {numbers, functions};
}
// The instructions of a block: offset in the function, text, and the offset that it jumps to within the function, which
// stands in the text alone.
function instructions(block) {
  const f = B.function[block], lines = [];
  let offset = B.start[block] - F.start[f], number = before().numbers[block], called = before().functions[block];
  for (let i = first[block]; i < first[block + 1]; i++) {
    let text = '', own = false, last = 0;
    for (const part of marks(I.kind[i])) {
      if (part === '#') { last = I.numbers[number++]; text += last < 10 ? last : '0x' + last.toString(16); }
      else if (part === '@') { const to = f + signed(I.functions[called++]); own = to === f; if (!own) text += functionName(to); }
      else text += part;
    }
    if (own && !last) text += '+0x0';
    lines.push({offset, text, target: own && /^(j|loop)/.test(text) ? last : undefined});
    offset += K.len[I.kind[i]];
  }
  return lines;
}
// Jumps back, innermost first: from the end to the start of each loop whose both ends ran.
function loops(lines) {
  const starts = new Set(lines.map(line => line.offset)), ends = new Map();
  for (const {offset, target} of lines) if (target <= offset && starts.has(target)) ends.set(target, Math.max(offset, ends.get(target) || 0));
  return [...ends].map(([from, to]) => ({from, to})).sort((a, b) => a.to - a.from - (b.to - b.from)).slice(0, 6);
}
// Rows that are drawn at once: a function of thousands is finished while the first ones are read.
const ROWS = 120;
function fill(body, rows, at = 0) {
  body.append(...rows.slice(at, at + ROWS).map(row => row()));
  if (at + ROWS < rows.length) setTimeout(() => fill(body, rows, at + ROWS));
}
let SHOWN = {};
function listing(f, ofFunction) {
  if (SHOWN.f !== f) SHOWN = {f, code: codeOf(f, ofFunction)};
  return SHOWN.code;
}
function codeOf(f, ofFunction) {
  const blocks = [...ofFunction].sort((a, b) => B.start[a] - B.start[b]);
  const versions = [...new Set(blocks.map(block => B.since[block]))].sort((a, b) => a - b);
  const seen = new Map(), heads = ['count', '±', 'EBS', 'LBR', 'source', 'share', 'loops', 'offset', 'instruction'];
  const parts = versions.map(since => {
    const mine = blocks.filter(block => B.since[block] === since), most = mine.reduce((most, block) => largest(most, block), 0) || 1;
    const lines = mine.flatMap(block => instructions(block).map((line, at) => ({...line, block, at})));
    const earlier = new Map(seen), body = el('tbody'), rounds = loops(lines);
    for (const {offset, text} of lines) seen.set(offset, text);
    const rows = lines.map(({offset, text, block, at}) => () => {
      const figures = I.amount ? ofSamples(block, at) : at ? ['', '', '', '', ''] : ofBlock(block), changed = earlier.has(offset) && earlier.get(offset) !== text;
      const strokes = rounds.map(({from, to}) => from === offset ? '┌' : to === offset ? '└' : from < offset && offset < to ? '│' : ' ');
      return el('tr', {className: (at ? '' : 'leader') + (changed ? ' changed' : '')}, ...figures.map(textContent => el('td', {textContent})),
        at && !I.amount ? el('td') : bar(countOf(block, first[block] + at) / most), el('td', {className: 'text', textContent: strokes.reverse().join('')}),
        el('td', {textContent: '+0x' + offset.toString(16)}), el('td', {className: 'text', textContent: (changed ? '≠ ' : '') + text}));
    });
    const names = heads.map(textContent => el('th', {textContent, scope: 'col', className: textContent === 'instruction' ? 'name' : ''}));
    fill(body, rows);
    const when = since ? `Text since ${(since / 1e9).toFixed(3)} s` : 'Text at the start';
    return el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': when}, versions.length > 1 ? el('p', {textContent: when}) : '',
      el('table', {className: 'code'}, el('thead', {}, el('tr', {}, ...names)), body));
  });
  const module = D.modules[F.module[f]], start = BigInt('0x' + module.start) + BigInt(F.start[f]);
  return el('div', {}, el('h2', {textContent: functionName(f)}),
    el('p', {className: 'soft', textContent: `${S[module.name]}, at 0x${start.toString(16)}; counts are ${D.head.unitWords}; code that was not seen to run is left out`}),
    versions.length > 1 ? el('p', {textContent: 'This code was patched during the run; ≠ marks what differs from the version before.'}) : '',
    el('div', {className: 'versions'}, ...parts));
}
// The largest count of the instructions of a block and of others.
function largest(most, block) {
  for (let i = first[block]; i < first[block + 1]; i++) most = Math.max(most, countOf(block, i));
  return most;
}
// Samples belong to single instructions.
function ofSamples(block, at) {
  const mine = I.amount[first[block] + at];
  return [mine ? amount(mine) : '', '', '', '', at ? '' : place.source(block)];
}
// Executions with their error, what each method counted, and which counts.
function ofBlock(block) {
  const chosen = amount(B.count[block]), other = Number.isNaN(B.other[block]) ? '' : amount(B.other[block]);
  return [chosen, '±' + amount(B.error[block]), ...(B.method[block] ? [other, chosen] : [chosen, other]), place.source(block)];
}
