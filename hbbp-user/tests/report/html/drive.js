// Uses a page as a reader does, and writes what it found into the document. Runs after the page's own script.
(async () => {
  const found = {errors: [], views: [], findings: []};
  addEventListener('error', event => found.errors.push(String(event.message)));
  addEventListener('securitypolicyviolation', event => found.errors.push(event.violatedDirective + ' ' + event.blockedURI));
  const wait = ms => new Promise(done => setTimeout(done, ms));
  const press = (key, at = document.activeElement) => at.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  const look = name => {
    const view = document.getElementById('view');
    found.views.push({name, text: view.innerText, width: document.body.scrollWidth, window: document.body.clientWidth,
      total: document.querySelector('[data-sum]')?.dataset.sum ?? null});
  };
  const check = async name => {
    if (typeof axe === 'undefined') return;
    const {violations} = await axe.run(document, {resultTypes: ['violations']});
    for (const {id, impact, nodes} of violations) found.findings.push({name, id, impact, where: nodes.map(node => node.html).slice(0, 3)});
  };
  try {
    for (let i = 0; i < 500 && document.documentElement.dataset.ready !== 'true'; i++) await wait(20);
    // Before anything is scrolled.
    const hottest = [...document.querySelectorAll('#hottest tbody tr')];
    found.hottest = {rows: hottest.length, bottom: hottest.at(-1)?.getBoundingClientRect().bottom ?? null};
    found.warnings = document.querySelectorAll('#warnings details').length;
    // By keys from tab to tab.
    const tabs = [...document.querySelectorAll('#tabs button')];
    tabs[0].focus();
    for (const tab of tabs) {
      if (document.activeElement !== tab) found.errors.push(`ArrowRight did not lead to ${tab.textContent}`);
      document.activeElement.click(); await wait(50);
      look(tab.textContent);
      for (const theme of ['light', 'dark']) { document.documentElement.dataset.theme = theme; await check(`${tab.textContent}, ${theme}`); }
      press('ArrowRight');
    }
    // From the icicle to the code of a function, by ring and module.
    tabs[0].click(); await wait(100);
    for (let depth = 1; depth < 4; depth++) {
      const cells = [...document.querySelectorAll('.icicle button')];
      cells[0].focus(); press('ArrowRight');
      document.activeElement.click(); await wait(100);
    }
    look('code');
    found.address = location.hash;
    found.rows = document.querySelectorAll('.code tbody tr').length;
    for (const theme of ['light', 'dark']) { document.documentElement.dataset.theme = theme; await check(`code, ${theme}`); }
    press('Escape', document.querySelector('.icicle button'));
    found.back = document.querySelectorAll('.crumbs button').length;
  } catch (error) { found.errors.push(String(error.stack)); }
  const text = JSON.stringify(found).replace(/[^\x20-\x7e]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  const out = document.createElement('pre');
  out.id = 'found'; out.textContent = btoa(text);
  document.body.append(out);
})();
