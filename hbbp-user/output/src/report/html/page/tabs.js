// The views, as tabs; an address such as #pivot or #function=NAME opens one.
const views = [
  ['Icicle', icicle],
  ...(D.changes ? [['Changes', changes]] : []),
  ...(D.time ? [['Over time', overTime]] : []),
  ['Pivot', () => pivot({rows: ['mnemonic'], cols: 'ring', filter: ''})],
  ['Modules', () => pivot({rows: ['module'], cols: 'ring', filter: ''})],
  ['Vectorization', () => pivot({rows: ['extension', 'packing'], cols: 'ring', filter: 'packing!=none',
    about: 'Vector instructions by extension: packed ones work on all elements of a register, scalar ones on one.'})],
  ['Mitigations', () => pivot({rows: ['mitigation', 'mnemonic'], cols: '', filter: 'mitigation!=none',
    about: 'What the kernel executes because of CPU vulnerabilities, from its live text. A disabled retpoline leaves NOPs, which count.'})],
  ['Patched code', patched],
  ['Loops', hotLoops],
  ['Latency', () => pivot({rows: ['mnemonic', 'function'], cols: 'ring', filter: 'long-latency!=(none)',
    about: 'Instructions of ten cycles or more, and where they run.'})],
  ['Synchronization', () => pivot({rows: ['mnemonic', 'function'], cols: 'ring', filter: 'synchronization!=(none)',
    about: 'Instructions that synchronize threads, and where they run.'})],
  ['ISA levels', () => pivot({rows: ['level', 'extension'], cols: 'ring', filter: '',
    about: 'The lowest level of x86-64 that has an instruction: what a machine must have to run it.'})],
  ['Memory', () => pivot({rows: ['memory', 'category'], cols: 'ring', filter: '',
    about: 'What instructions do with memory, the stack included.'})],
  ['Branches', () => pivot({rows: ['flow'], cols: 'ring', filter: 'flow!=next',
    about: 'Instructions that may pass control elsewhere than to the next one.'})],
];
const address = name => name.toLowerCase().replaceAll(' ', '-');
function open(at, content) {
  views.forEach((_, k) => {
    const tab = $('tab' + k);
    tab.setAttribute('aria-selected', String(k === at)); tab.tabIndex = k === at ? 0 : -1;
  });
  $('view').setAttribute('aria-labelledby', 'tab' + at);
  $('view').replaceChildren(content);
  content.dispatchEvent(new Event('show'));
}
function tabs() {
  views.forEach(([name, show], at) => {
    const tab = el('button', {textContent: name, id: 'tab' + at, role: 'tab', 'aria-controls': 'view'});
    tab.onclick = () => { open(at, show()); history.replaceState(null, '', '#' + address(name)); };
    tab.onkeydown = event => {
      const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: views.length - 1}[event.key];
      if (to !== undefined) { $('tab' + (to + views.length) % views.length).focus(); event.preventDefault(); }
    };
    $('tabs').append(tab);
  });
  addEventListener('hashchange', follow);
  follow();
}
function follow() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted.startsWith('function=')) return open(0, icicle(wanted.slice('function='.length)));
  const at = Math.max(0, views.findIndex(([name]) => address(name) === wanted));
  open(at, views[at][1]());
}

head();
tabs();
document.documentElement.dataset.ready = 'true';
// What the first code needs is made while nobody waits for it.
setTimeout(before, 500);
