// What stands above the views: the run, its warnings, and both rings as bars of class shares.
function head() {
  const why = $('without-executions');
  why.hidden = !D.head.withoutExecutions; why.textContent = D.head.withoutExecutions || '';
  $('run').textContent = D.head.run;
  $('unit').textContent = D.head.unit;
  warnings(D.head.warnings);
  hottestOfAll();
  for (const [name, value] of D.head.facts) $('facts').append(el('dt', {textContent: name}), el('dd', {textContent: value}));
  rings('category');
  const theme = el('button', {textContent: 'Light or dark'});
  theme.onclick = () => {
    const chosen = document.documentElement.dataset.theme;
    const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  };
  $('foot').append(theme, ' ', el('span', {className: 'soft', textContent: D.head.made}));
}
// Warnings fold: their number and the first one are a line.
function warnings(texts) {
  if (!texts.length) return;
  const [first, ...others] = texts.map(textContent => el('p', {className: 'warning', textContent}));
  const title = texts.length === 1 ? 'One warning: ' : `${texts.length} warnings, the first: `;
  $('warnings').append(el('details', {}, el('summary', {className: 'soft', textContent: title + texts[0]}), first, ...others));
}
// The hottest functions of all, before anything else is drawn.
const FIRST = 8;
function hottestOfAll() {
  TREE ||= tree();
  const functions = functionsOf(TREE).sort((a, b) => b.sum - a.sum);
  const line = one => {
    const open = el('button', {className: 'link', textContent: one.name, title: one.name});
    open.onclick = () => {
      history.replaceState(null, '', '#function=' + encodeURIComponent(one.name));
      follow(); $('view').scrollIntoView();
    };
    return el('tr', {}, el('td', {className: 'name'}, open), el('td', {className: 'name', textContent: one.parent.name, title: one.parent.name}),
      el('td', {textContent: (100 * one.sum / (whole || 1)).toFixed(2)}));
  };
  const heads = ['function', 'module', '%'].map((textContent, i) => el('th', {textContent, scope: 'col', className: i < 2 ? 'name' : ''}));
  const title = `Hottest ${Math.min(FIRST, functions.length)} of ${group.format(functions.length)} functions`;
  $('hottest').append(el('h2', {textContent: title}), el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': title},
    el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...functions.slice(0, FIRST).map(line)))));
}
// What bars and the icicle are coloured by; who draws in these colours hears of another choice.
let colourBy = 'category';
const NEW_COLOURS = 'newcolours';
function rings(name) {
  colourBy = name;
  const colours = palette(name);
  const lines = ringClasses(name).map((classes, r) => {
    const strip = el('div', {className: 'bar', role: 'img'}), sums = new Map(classes), share = sum => sum / (total[r] || 1);
    const words = classes.slice(0, 6).map(([key, sum]) => key + ' ' + percent(share(sum)));
    strip.setAttribute('aria-label', `${RINGS[r]} by ${name}: ${words.join(', ') || 'nothing'}`);
    // Both rings have the classes in one order, so that they can be compared.
    const coloured = [...colours.colours.keys()].map(key => [key, sums.get(key) || 0, key]);
    const rest = classes.filter(([key]) => !colours.colours.has(key));
    const others = ['others', rest.reduce((all, [, sum]) => all + sum, 0), rest.map(([key]) => key).join(', ')];
    for (const [key, sum, title] of [...coloured, others]) if (sum) {
      const part = el('span', {textContent: share(sum) > 0.05 ? `${key} ${percent(share(sum))}` : '', title: `${percent(share(sum))}: ${title}`});
      part.style.width = 100 * share(sum) + '%'; part.style.background = colours.of(key);
      strip.append(part);
    }
    return el('div', {className: 'ring'}, el('div', {}, RINGS[r], el('br'),
      el('span', {className: 'soft', textContent: `${amount(total[r])}, ${percent(total[r] / (whole || 1))}`})), strip);
  });
  const choose = chooser('Colour by', D.attributes, name, chosen => { rings(chosen); dispatchEvent(new Event(NEW_COLOURS)); });
  $('rings').replaceChildren(...lines, el('div', {className: 'tools'}, choose, legend(colours)));
}
