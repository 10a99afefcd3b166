// Figures as text, and amounts by class with their colours.
const group = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
function amount(value) {
  // Samples are spread over the instructions of their block.
  if (0 < value && value < 100 && value !== Math.round(value)) return value.toFixed(value < 10 ? 2 : 1);
  if (value < 1e7) return group.format(Math.round(value));
  const scale = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M']].find(([by]) => by <= value);
  return (value / scale[0]).toPrecision(5) + ' ' + scale[1];
}
const percent = share => (100 * share).toFixed(2) + ' %';

// Okabe and Ito's palette, which colour-blind people tell apart; the last is for what has no colour of its own.
const COLOURS = ['#56b4e9', '#e69f00', '#6cc5a1', '#f0e442', '#d98cb3', '#e0784a', '#9db8e8', '#c9b18a'];
const OTHERS = '#b8bec5';

// Adds the amounts of some blocks to sums by the string of their class.
function addByClass(sums, blocks, name) {
  const at = D.attributes.indexOf(name);
  for (const block of blocks) for (let i = first[block]; i < first[block + 1]; i++) {
    const key = D.forms[formOf[i]][at];
    sums.set(key, (sums.get(key) || 0) + B.count[block]);
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
// Colours of the classes of an attribute: the largest have one each.
function palette(name) {
  const sums = new Map();
  for (const classes of ringClasses(name)) for (const [key, sum] of classes) sums.set(key, (sums.get(key) || 0) + sum);
  const classes = [...sums].sort((a, b) => b[1] - a[1]).slice(0, COLOURS.length);
  const colours = new Map(classes.map(([key], i) => [key, COLOURS[i]]));
  return {colours, of: key => colours.get(key) || OTHERS};
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
