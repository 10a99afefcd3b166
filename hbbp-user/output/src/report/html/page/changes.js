// What changed against another profile, with its significance as `hbbp-sys diff` computes it.
function changes() {
  const {sides, notes, tables, level} = D.changes, out = el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Changes'});
  const summary = el('p', {'aria-live': 'polite'});
  let at = 0, wanted = '';
  const points = ([value, error]) => [`${value < 0 ? '−' : '+'}${Math.abs(100 * value).toFixed(3)}`, `±${(100 * error).toFixed(3)}`];
  function draw() {
    const {by, rows, compared, significant, more} = tables[at];
    const widest = rows.reduce((widest, {change: [value]}) => Math.max(widest, Math.abs(value)), 0) || 1;
    const shown = rows.filter(row => (!only.checked || row.significant) && row.key.some(name => name.toLowerCase().includes(wanted)));
    const heads = [...by, 'A %', 'B %', 'change', '±', 'p', 'less or more'].map((textContent, i) =>
      el('th', {textContent, scope: 'col', className: i < by.length ? 'name' : ''}));
    const line = ({key, a, b, change, p, significant}) => {
      const mark = el('div', {className: change[0] < 0 ? 'less' : 'more-of'}); mark.style.width = 50 * Math.abs(change[0]) / widest + '%';
      const figures = [(100 * a[0]).toFixed(2), (100 * b[0]).toFixed(2), ...points(change), (p < 1e-4 ? '<0.0001' : p.toFixed(4)) + (significant ? '*' : ' ')];
      return el('tr', {className: significant ? '' : 'soft'}, ...key.map(name => el('td', {className: 'name', textContent: name, title: name})),
        ...figures.map(textContent => el('td', {textContent})), el('td', {className: 'both-ways'}, mark));
    };
    summary.textContent = `${group.format(significant)} of ${group.format(compared)} rows changed more than by chance ` +
      `(*: adjusted p at most ${level}); shares in %, change in percentage points` + (more ? `; the ${group.format(more)} least changes are left out` : '');
    out.replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...shown.map(line))),
      ...(shown.length ? [] : [el('p', {textContent: 'Nothing to show: nothing changed, or nothing is called so.'})]));
  }
  const names = tables.map(({by}) => by.join(', '));
  const only = el('input', {type: 'checkbox', checked: tables.some(({significant}) => 0 < significant)}); only.onchange = draw;
  const search = el('input', {type: 'search', placeholder: 'name'}); search.oninput = () => { wanted = search.value.toLowerCase(); draw(); };
  draw();
  const dl = el('dl', {}, ...sides.flatMap((side, i) => [el('dt', {textContent: 'AB'[i]}), el('dd', {textContent: side})]));
  return el('div', {}, dl, ...notes.map(textContent => el('p', {className: 'warning', textContent})),
    el('div', {className: 'tools'}, chooser('By', names, names[0], name => { at = names.indexOf(name); draw(); }),
      el('label', {}, only, ' only what is more than chance'), el('label', {}, 'Search ', search)), summary, out);
}
