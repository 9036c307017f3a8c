/** The one call made to Nest. Its own types are not installed here: the tests compile with them, in `tools/nest`. */
declare module "@nestjs/common" {
  export function Inject(token: string): (target: object, key: string | symbol | undefined, index?: number) => void;
}
