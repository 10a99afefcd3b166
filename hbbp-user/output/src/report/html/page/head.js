// What stands above the views: the run, its warnings, and both rings as bars of class shares.
function head() {
  $('run').textContent = D.head.run;
  $('unit').textContent = D.head.unit;
  for (const text of D.head.warnings) $('warnings').append(el('p', {className: 'warning', textContent: text}));
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
