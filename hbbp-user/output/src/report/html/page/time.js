// The mix over time as a stacked area, and as a table.
function overTime() {
  const {periods, amount: amounts} = D.time, forms = D.forms.length;
  const out = el('div'), WIDTH = 1000, HEIGHT = 320;
  let name = 'category', ring = 'both', kind = 'shares';
  const svg = (tag, props, ...children) => {
    const node = document.createElementNS($('svg').namespaceURI, tag);
    for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  // Amounts by class, each a list by period; the classes without a colour are one.
  function layers(colours) {
    const at = D.attributes.indexOf(name), found = new Map([...colours.colours.keys(), 'others'].map(key => [key, new Float64Array(periods.length)]));
    periods.forEach((_, period) => RINGS.forEach((of, r) => {
      if (ring !== 'both' && ring !== of) return;
      for (let form = 0; form < forms; form++) {
        const sum = amounts[(period * RINGS.length + r) * forms + form], key = S[D.forms[form][at]];
        if (sum) (found.get(key) || found.get('others'))[period] += sum;
      }
    }));
    return [...found];
  }
  function draw() {
    const colours = palette(name), all = layers(colours);
    const sum = period => all.reduce((sum, [, values]) => sum + values[period], 0), seconds = ([from, to]) => to - from || 1;
    const height = (value, period) => kind === 'shares' ? value / (sum(period) || 1) : value / seconds(periods[period]);
    const top = kind === 'shares' ? 1 : Math.max(...periods.map((_, period) => height(sum(period), period))) || 1;
    const end = periods.at(-1)[1], x = time => WIDTH * time / end, y = value => HEIGHT * (1 - value / top);
    const base = periods.map(() => 0), areas = all.map(([key, values]) => {
      const upper = [], lower = [];
      periods.forEach(([from, to], period) => {
        const next = base[period] + height(values[period], period);
        for (const time of [from, to]) { upper.push(`${x(time).toFixed(1)},${y(next).toFixed(1)}`); lower.unshift(`${x(time).toFixed(1)},${y(base[period]).toFixed(1)}`); }
        base[period] = next;
      });
      return svg('polygon', {points: [...upper, ...lower].join(' '), fill: colours.of(key)}, svg('title', {}, key));
    });
    const picture = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', class: 'area',
      'aria-label': `${kind} by ${name} over ${end.toFixed(0)} s; the table below has the figures`}, ...areas);
    const unit = kind === 'shares' ? '100 %' : `${amount(top)} per second`;
    const rows = periods.map(([from, to], period) => el('tr', {}, el('td', {textContent: `${from.toFixed(1)} to ${to.toFixed(1)} s`}),
      ...all.map(([, values]) => el('td', {textContent: kind === 'shares' ? (100 * height(values[period], period)).toFixed(2) : amount(height(values[period], period))})),
      el('td', {textContent: amount(sum(period))})));
    const heads = ['time', ...all.map(([key]) => key), D.head.unitWords].map(textContent => el('th', {textContent, scope: 'col'}));
    const table = el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows));
    out.replaceChildren(legend(colours), el('p', {className: 'soft axis', textContent: unit}), picture,
      el('div', {className: 'ends soft'}, el('span', {textContent: '0 s'}), el('span', {textContent: `${end.toFixed(1)} s`})),
      el('details', {}, el('summary', {textContent: `The figures of all ${periods.length} periods`}),
        el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Figures by period'}, table)));
  }
  draw();
  const pick = (label, values, value, set) => chooser(label, values, value, chosen => { set(chosen); draw(); });
  return el('div', {}, el('p', {className: 'soft', textContent: 'Amounts of a block are spread over the run as its samples or streams are.'}),
    el('div', {className: 'tools'}, pick('By', D.attributes, name, chosen => name = chosen), pick('Ring', ['both', ...RINGS], ring, chosen => ring = chosen),
      pick('Height', ['shares', 'amounts per second'], kind, chosen => kind = chosen)), out);
}
