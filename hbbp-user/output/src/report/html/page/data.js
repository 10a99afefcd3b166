// Reads the table in #data: a document of JSON, and columns of numbers after it. All names are set as text, never as markup,
// as others chose them.
const el = (tag, props = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key in node && !key.startsWith('aria')) node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
const $ = id => document.getElementById(id);

async function table() {
  const text = atob($('data').textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const document = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  columns(document, bytes, 4 + length);
  return document;
}
// Column `block.count` becomes `count` of `document.block`.
function columns(document, bytes, at) {
  const view = new DataView(bytes.buffer);
  const unsigned = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (128 <= byte);
    return value;
  };
  for (const {name, coding, len} of document.columns) {
    const values = new Float64Array(len), [table, column] = name.split('.');
    let before = 0;
    for (let i = 0; i < len; i++) {
      if (coding === 'unsigned') values[i] = unsigned();
      else if (coding === 'delta') { before += signed(unsigned()); values[i] = before; }
      else if (coding === 'double') { values[i] = view.getFloat64(at, true); at += 8; }
      else { values[i] = view.getFloat32(at, true); at += 4; }
    }
    (document[table] ||= {})[column] = values;
  }
}
const signed = zigzag => zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;

let D;
try { D = await table(); } catch (error) {
  $('view').append(el('p', {className: 'warning', textContent: 'The data of this page cannot be read: ' + error}));
  return;
}
const S = D.strings, B = D.block, F = D.function, K = D.kind, I = D.instruction;
const RINGS = ['kernel', 'user'];
const n = B.count.length;
// The instructions of a block are those from `first[block]` to before `first[block + 1]`.
const first = new Uint32Array(n + 1);
for (let block = 0; block < n; block++) first[block + 1] = first[block] + B.size[block];
const formOf = Uint16Array.from(I.kind, kind => K.form[kind]);
const moduleOf = block => F.module[B.function[block]];
const functionName = f => S[F.name[f]];
// The file's name, with the folder where two modules share it.
const files = D.modules.map(m => S[m.name].replace(/.*\/(?=.)/, ''));
const moduleNames = files.map((file, m) => files.indexOf(file) !== files.lastIndexOf(file) ? S[D.modules[m].name] : file);
const place = {
  ring: block => RINGS[B.ring[block]],
  module: block => moduleNames[moduleOf(block)],
  function: block => functionName(B.function[block]),
  source: block => B.method[block] ? 'LBR' : 'EBS',
};
const dimensions = [...Object.keys(place), ...D.attributes];
// What an instruction has: of executions, as many as its block; of samples, its own.
const countOf = (block, i) => I.amount ? I.amount[i] : B.count[block];
const amountOf = block => B.count[block] * B.size[block];
const total = RINGS.map(() => 0);
for (let block = 0; block < n; block++) total[B.ring[block]] += amountOf(block);
const whole = total[0] + total[1];
