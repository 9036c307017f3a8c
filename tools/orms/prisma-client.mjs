// In place of the client that `prisma generate` writes, whose download cannot be reached: what the page calls, on Prisma's own adapter.
export class PrismaClient {
  #connection;

  constructor({ adapter }) {
    this.#connection = adapter.connect();
  }

  async $executeRaw(texts, ...args) {
    const sql = texts.reduce((all, text, at) => `${all}$${at}${text}`);
    const argTypes = args.map(() => ({ scalarType: "bigint", arity: "scalar" }));
    return (await this.#connection).executeRaw({ sql, args, argTypes });
  }

  async $disconnect() {
    await (await this.#connection).dispose();
  }
}
