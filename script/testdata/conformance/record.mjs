// Runs the scripts of the case files in Node and writes down what they yield. See README.md.
//
//   node record.mjs [--check] [FILE…]
//
// --check writes nothing and fails if a file would change. Another version of Node than the one that is recorded is refused.

import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import vm from 'node:vm';

const recorded = 20; // the major version of Node
if (Number(process.versions.node.split('.')[0]) !== recorded) {
  console.error(`the results are those of Node ${recorded}; this is ${process.version}`);
  process.exit(2);
}

process.env.TZ = 'UTC';

const now = 1767225600000; // 2026-01-01, as in the Go test
const longLine = 2000; // in characters; longer lines are shortened

// The body contract, evaluated in each case's own realm so that its objects are the realm's own.
function realm(now) {
  'use strict';
  const NativeDate = Date;
  globalThis.Date = new Proxy(NativeDate, {
    construct: (target, args, self) => Reflect.construct(target, args.length > 0 ? args : [now], self),
    apply: () => new NativeDate(now).toString(),
    get: (target, name) => (name === 'now' ? () => now : Reflect.get(target, name)),
  });

  // Integers that a double cannot hold become BigInt. Node's JSON.parse gives its reviver no source text, so the numbers
  // that matter are marked in the text first.
  const mark = '\u0000big:';
  const marked = (text) => {
    let out = '';
    for (let i = 0; i < text.length; ) {
      if (text[i] === '"') {
        let end = i + 1;
        while (text[end] !== '"') end += text[end] === '\\' ? 2 : 1;
        out += text.slice(i, end + 1);
        i = end + 1;
        continue;
      }
      const number = /^-?\d[\d.eE+-]*/.exec(text.slice(i, i + 400))?.[0];
      if (number === undefined) {
        out += text[i++];
        continue;
      }
      out += /^-?\d+$/.test(number) && !Number.isSafeInteger(Number(number)) ? JSON.stringify(mark + number) : number;
      i += number.length;
    }
    return out;
  };
  const parse = (text) =>
    JSON.parse(marked(text), (_, value) => (typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value));
  const replacer = (_, value) => (typeof value === 'bigint' ? mark + value : value);
  const stringify = (value) => JSON.stringify(value, replacer)?.replaceAll(/"\\u0000big:(-?\d+)"/g, '$1');

  class MessageBox {
    constructor(fields) { Object.defineProperty(this, 'fields', { value: fields, enumerable: false }); }
  }
  class StateBox {
    constructor(value) { Object.defineProperty(this, 'inner', { value, enumerable: false }); }
  }
  const shows = (box, fields) =>
    new Proxy(box, {
      get: (target, name) => (name === 'fields' || name === 'inner' ? target[name] : fields?.[name]),
      set: (_, name, value) => { fields[name] = value; return true; },
    });
  const Message = (fields) => shows(new MessageBox(fields), fields);
  const State = (value) => shows(new StateBox(value), value);

  const sorted = (value) => {
    if (Array.isArray(value)) return value.map(sorted);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
  };

  return {
    parse, Message, State,
    // What a yielded value says, as one line without its kind; undefined if it says nothing.
    message(box, record, topics) {
      const { topic, key, value, headers, timestamp, partition } = box.fields;
      let line = 'message';
      if (topic !== undefined && topics.length > 1) line += ` topic=${topic}`;
      if (key !== undefined && key !== record.key) line += ` key=${key === null ? null : stringify(typeof key === 'object' ? sorted(key) : key)}`;
      if (partition !== undefined) line += ` partition=${partition}`;
      if (timestamp !== undefined && Number(timestamp) !== record.timestamp) line += ` timestamp=${Number(timestamp)}`;
      if (headers !== undefined && headers !== null && Object.keys(headers).length > 0) line += ` headers=${stringify(headers)}`;
      return `${line} ${value === null ? 'tombstone' : stringify(value)}`;
    },
    state(box) {
      const text = stringify(box.inner ?? {});
      return text === '{}' ? null : text;
    },
    kind: (value) => (value instanceof MessageBox ? 'message' : value instanceof StateBox ? 'state' : 'other'),
    other: (value) => stringify(value),
    freeze: function freeze(value) {
      if (value !== null && typeof value === 'object') Object.values(Object.freeze(value)).forEach(freeze);
      return value;
    },
    // Errors that the script makes are told from those of the engine, whose wording is its own.
    watch(made) {
      for (const name of ['Error', 'TypeError', 'RangeError', 'SyntaxError', 'ReferenceError', 'EvalError', 'URIError']) {
        const native = globalThis[name];
        const watched = new Proxy(native, {
          construct: (target, args, self) => { const e = Reflect.construct(target, args, self); made.add(e); return e; },
          apply: (target, self, args) => { const e = Reflect.apply(target, self, args); made.add(e); return e; },
        });
        native.prototype.constructor = watched;
        globalThis[name] = watched;
      }
    },
  };
}

function expand(text) {
  return text.replaceAll(/@\{(.+?)\*(\d+)\}/g, (_, part, times) => part.repeat(Number(times)));
}

// A case: its directives and its texts.
function readCase(input) {
  const c = { in: [], states: {}, topics: ['out'], functions: null };
  const lines = input.split('\n');
  while (lines.length > 0 && lines[0].startsWith('@')) {
    const line = lines.shift();
    const [, name, rest] = /^@(\S+) ?(.*)$/.exec(line);
    switch (name) {
      case 'in': {
        const [, key, value] = /^(?:key=(\S+) ?)?(.*)$/.exec(expand(rest));
        c.in.push({ key: key === undefined ? 'k' : JSON.parse(key), value });
        break;
      }
      case 'headers': c.headers = rest; break;
      case 'state': {
        const [, key, value] = /^(\S+) (.*)$/.exec(rest);
        c.states[key] = value;
        break;
      }
      case 'initial': c.initial = rest; break;
      case 'vars': c.vars = rest; break;
      case 'topics': c.topics = rest.split(' '); break;
      case 'differs': c.differs = rest; break;
      case 'functions': {
        const end = lines.indexOf('@body');
        if (end < 0) throw new Error('@functions without @body');
        c.functions = lines.splice(0, end + 1).slice(0, -1).join('\n');
        break;
      }
      default: throw new Error(`there is no @${name}`);
    }
  }
  if (c.in.length === 0) c.in.push({ key: 'k', value: '{}' });
  c.body = lines.join('\n');
  return c;
}

// place is the innermost line of the script on an error's stack.
function place(error) {
  const match = /(body|functions):(\d+):\d+/.exec(String(error.stack ?? ''));
  if (match === null) return '?';
  return match[1] === 'body' ? match[2] : `functions:${match[2]}`;
}

function showError(error, made) {
  if (error === null || typeof error !== 'object' || typeof error.stack !== 'string') return 'error thrown ?';
  return `error ${error.name} ${place(error)}` + (made.has(error) ? `: ${error.message}` : '');
}

async function run(c) {
  const context = vm.createContext(Object.create(null));
  const env = vm.runInContext(`(${realm})`, context)(now);
  const made = new WeakSet();
  env.watch(made);
  context.Message = env.Message;
  context.State = env.State;
  context.State.initial = () => env.parse(c.initial ?? '{}');
  for (const name of ['URL', 'URLSearchParams', 'TextEncoder', 'TextDecoder', 'structuredClone']) context[name] = globalThis[name];
  context.vars = env.freeze(env.parse(c.vars ?? '{}'));
  let body;
  try {
    if (c.functions !== null) vm.runInContext(`"use strict";${c.functions}`, context, { filename: 'functions' });
    body = vm.runInContext(`(async function*(msg, state) { "use strict"; ${c.body}\n})`, context, { filename: 'body' });
  } catch (e) {
    const line = /^(body|functions):(\d+)/.exec(e.stack)?.[2] ?? '?';
    return [`error ${e.name} ${line}`];
  }
  const lines = [];
  const states = { ...c.states };
  const headers = env.parse(c.headers ?? '{}');
  for (const [offset, { key, value }] of c.in.entries()) {
    const record = { key, timestamp: 1000 + offset };
    const msg = env.parse('{}');
    Object.assign(msg, {
      key, value: value === '' ? null : env.parse(value), topic: 'in', partition: 0, offset, timestamp: record.timestamp,
      headers: env.parse(JSON.stringify(headers)),
    });
    const said = [];
    let after = states[key] ?? null;
    try {
      const script = body(msg, env.parse(states[key] ?? c.initial ?? '{}'));
      for (;;) {
        const step = await script.next();
        if (step.done) {
          if (step.value !== undefined) said.push(`returned ${env.other(step.value)}`);
          break;
        }
        switch (env.kind(step.value)) {
          case 'message': said.push(env.message(step.value, record, c.topics)); break;
          case 'state': after = env.state(step.value); break;
          default: said.push(`other ${env.other(step.value)}`);
        }
      }
      lines.push(...said);
      states[key] = after;
    } catch (e) {
      lines.push(showError(e, made));
    }
  }
  for (const key of Object.keys(states).sort()) {
    if ((states[key] ?? null) !== (c.states[key] ?? null)) lines.push(`state ${key} ${states[key] ?? 'deleted'}`);
  }
  return lines.map(shorten);
}

// shorten cuts a long line and gives its hash (FNV-1a, 32 bits, of its UTF-8 bytes).
function shorten(line) {
  if (line.length <= longLine) return line;
  let hash = 2166136261;
  for (const byte of Buffer.from(line)) hash = Math.imul(hash ^ byte, 16777619) >>> 0;
  return `${line.slice(0, 60)}… ${Buffer.byteLength(line)} bytes, hash ${hash}`;
}

async function record(file) {
  const before = fs.readFileSync(file, 'utf8');
  const lines = before.split('\n');
  const out = [];
  let cases = 0;
  let failed = false;
  while (lines.length > 0) {
    const line = lines.shift();
    out.push(line);
    if (!line.startsWith('case ')) continue;
    cases++;
    const end = lines.indexOf('----');
    const input = lines.splice(0, end + 1);
    out.push(...input);
    let stop = lines.indexOf('');
    if (stop < 0) stop = lines.length;
    const expected = lines.splice(0, stop);
    const c = readCase(input.slice(0, -1).join('\n').trim());
    const got = await run(c);
    if (got.length === 0) got.push('nothing');
    if (c.differs === undefined) {
      out.push(...got);
      continue;
    }
    const at = expected.indexOf('own:');
    const own = at < 0 ? ['?'] : expected.slice(at + 1);
    if (own.join('\n') === got.join('\n')) {
      console.error(`${file}: ${line}: is marked as different, but is not`);
      failed = true;
    }
    out.push('node:', ...got, 'own:', ...own);
  }
  const after = out.join('\n');
  if (after !== before && process.argv.includes('--check')) {
    console.error(`${file}: Node gives something else now`);
    failed = true;
  } else if (after !== before) {
    fs.writeFileSync(file, after);
  }
  return { cases, failed };
}

process.on('unhandledRejection', (e) => { throw e; });
const here = path.dirname(new URL(import.meta.url).pathname);
let files = process.argv.slice(2).filter((a) => !a.startsWith('--'));
if (files.length === 0) files = fs.readdirSync(here).filter((f) => f.endsWith('.txt')).map((f) => path.join(here, f));
let total = 0;
let failed = false;
for (const file of files) {
  const result = await record(file);
  total += result.cases;
  failed ||= result.failed;
}
console.log(`${total} cases in ${files.length} files, Node ${process.version}`);
process.exitCode = failed ? 1 : 0;
