// Beyond the common files of an engine: where claims, tombstones, capacities and cells are kept.

/**
 * Where things are kept. A claim is `prefix` + escaped name + `/` + id, which is where `etcdctl lock` puts its own; everything
 * else is kept under a segment that no escaped name can be: a percent sign alone.
 */
export class Keys {
  readonly prefix: string;

  constructor(prefix: string) {
    this.prefix = prefix;
  }

  claim(name: string, id: string): string {
    return `${this.prefix}${escaped(name)}/${id}`;
  }

  /** All claims of a name, whoever made them. */
  claims(name: string): readonly [from: string, to: string] {
    const stem = `${this.prefix}${escaped(name)}`;
    // "0" is the character after "/".
    return [`${stem}/`, `${stem}0`];
  }

  /** Every claim of every name that starts like this begins so. */
  stem(names: string): string {
    return `${this.prefix}${escaped(names)}`;
  }

  /** The first key behind all of ours: whoever may read no further is refused as soon as a range goes beyond it. */
  get end(): string {
    const last = /.$/su.exec(this.prefix)?.[0].codePointAt(0);
    // To etcd: all keys from the first one on.
    if (last === undefined || last === 0x10ffff) return "\0";
    // UTF-8 sorts as code points do, among which these have no place.
    const next = last === 0xd7ff ? 0xe000 : last + 1;
    return this.prefix.slice(0, -String.fromCodePoint(last).length) + String.fromCodePoint(next);
  }

  /** The name and id of a claim's key; null for keys that are no claims. */
  parse(key: string): { readonly name: string; readonly id: string } | null {
    const [segment = "", id, ...more] = key.slice(this.prefix.length).split("/");
    if (segment === "%" || segment === "" || id === undefined) return null;
    return { name: unescaped(segment), id: [id, ...more].join("/") };
  }

  /** Never there. */
  get probe(): string {
    return `${this.prefix}%/probe`;
  }

  get layoutVersion(): string {
    return `${this.prefix}%/layout-version`;
  }

  tombstone(name: string, id: string): string {
    return `${this.prefix}%/tombstone/${escaped(name)}/${id}`;
  }

  capacity(name: string): string {
    return `${this.prefix}%/capacity/${escaped(name)}`;
  }

  cell(name: string): string {
    return `${this.prefix}%/cell/${escaped(name)}`;
  }

  operation(id: string): string {
    return `${this.prefix}%/operation/${escaped(id)}`;
  }
}

/** So that no name's claims are inside another's, and all that is printable stays readable. */
function escaped(name: string): string {
  return /[%/]/.test(name) ? name.replaceAll("%", "%25").replaceAll("/", "%2F") : name;
}

function unescaped(segment: string): string {
  return segment.replaceAll("%2F", "/").replaceAll("%25", "%");
}
