// Figures as text, and amounts by class with their colours.
const group = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
function amount(value) {
  // Samples can be divided among several predecessors.
  if (0 < value && value < 100 && value !== Math.round(value)) return value.toFixed(value < 10 ? 2 : 1);
  if (value < 1e7) return group.format(Math.round(value));
  const scale = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M']].find(([by]) => by <= value);
  return (value / scale[0]).toPrecision(5) + ' ' + scale[1];
}
const percent = share => (100 * share).toFixed(2) + ' %';

// Each category has one colour on all pages, so that two pages can be compared. The frequent ones have those of Okabe and Ito, which
// colour-blind people tell apart. Black text can be read on all of them.
const CATEGORIES = {
  'data transfer': '#56b4e9', 'stack': '#9db8e8', 'arithmetic': '#e69f00', 'logic': '#f0c96a', 'shift and rotate': '#c9b18a',
  'bit and byte': '#d9cf6a', 'compare': '#f0e442', 'convert': '#f3b68b', 'shuffle and pack': '#d98cb3', 'string': '#8fd0d0',
  'exchange': '#b7d7f2', 'branch, conditional': '#6cc5a1', 'branch, unconditional': '#a3d9a5', 'call': '#e0784a', 'return': '#f09a7a',
  'system call': '#c7a0e0', 'trap': '#e6a0c4', 'flags': '#cfc9a0', 'cryptography': '#b58be0', 'random number': '#d3b8f0',
  'cache and prefetch': '#7fc7c4', 'synchronisation': '#ff8f9a', 'state save and restore': '#e8b0b0', 'matrix': '#b0c94f',
  'input and output': '#a9b8a0', 'system': '#d0a98a', 'nop': '#9aa5b1', 'other': '#cbb7c9',
};
const OTHERS = '#b8bec5';
// Other classes have a colour that follows from their name.
function colourOf(key) {
  if (key === 'others') return OTHERS;
  if (Object.hasOwn(CATEGORIES, key)) return CATEGORIES[key];
  let hash = 2166136261;
  for (const char of key) hash = Math.imul(hash ^ char.codePointAt(0), 16777619) >>> 0;
  return `hsl(${hash % 360} ${50 + (hash >>> 9) % 40}% ${66 + (hash >>> 16) % 16}%)`;
}

// Adds the amounts of some blocks to sums by the string of their class.
function addByClass(sums, blocks, name) {
  const at = D.attributes.indexOf(name);
  for (const block of blocks) for (let i = first[block]; i < first[block + 1]; i++) {
    const key = D.forms[formOf[i]][at];
    sums.set(key, (sums.get(key) || 0) + countOf(block, i));
  }
  return sums;
}
const sorted = sums => [...sums].map(([key, sum]) => [S[key], sum]).sort((a, b) => b[1] - a[1]);
// The classes of each ring by an attribute: [class, amount], largest first.
const ofRings = {};
function ringClasses(name) {
  return ofRings[name] ||= RINGS.map((_, ring) => sorted(addByClass(new Map(), everyBlock.filter(b => B.ring[b] === ring), name)));
}
const everyBlock = [...Array(n).keys()];
// The largest classes of an attribute, which bars and legends name, with their colours.
const NAMED = 8;
function palette(name) {
  const sums = new Map();
  for (const classes of ringClasses(name)) for (const [key, sum] of classes) sums.set(key, (sums.get(key) || 0) + sum);
  const classes = [...sums].sort((a, b) => b[1] - a[1]).slice(0, NAMED);
  return {colours: new Map(classes.map(([key]) => [key, colourOf(key)])), of: colourOf};
}
function legend({colours}) {
  const entry = (colour, name) => {
    const box = el('i'); box.style.background = colour;
    return el('span', {}, box, name);
  };
  return el('div', {className: 'legend'}, ...[...colours].map(([name, colour]) => entry(colour, name)), entry(OTHERS, 'others'));
}
function chooser(label, values, value, set) {
  const select = el('select');
  for (const name of values) select.append(el('option', {value: name, textContent: name || '(none)', selected: name === value}));
  select.onchange = () => set(select.value);
  return el('label', {}, label + ' ', select);
}
function bar(share) {
  const part = el('div'); part.style.width = 100 * share + '%';
  return el('td', {className: 'meter'}, part);
}
