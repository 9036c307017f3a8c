/** An identifier as a part of a statement. */
export function quotedWith(quote: '"' | "`"): (identifier: string) => string {
  return (identifier) => `${quote}${identifier.replaceAll(quote, `${quote}${quote}`)}${quote}`;
}

/** The schema in the place of `holdfast`, by a function: in a replacement text a dollar sign means something else. */
export function inSchema(sql: string, quotedSchema: string): string {
  return sql.replaceAll(/\bholdfast\./g, () => `${quotedSchema}.`);
}

/** `:name` in a statement becomes what `place` says. */
export function placed(statement: string, place: (parameter: string) => string): string {
  return statement.replaceAll(/(?<!:):([a-z]\w*)/gi, (_, parameter: string) => place(parameter));
}
