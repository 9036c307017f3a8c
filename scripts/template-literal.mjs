/** A text as source code that can be read line by line: in a debugger a script looks as it was written. */
export function templateLiteral(text) {
  return `\`${text.replaceAll(/[`\\]|\$(?=\{)/g, "\\$&")}\``;
}
