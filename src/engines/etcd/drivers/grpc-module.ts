/** What is used of `@grpc/grpc-js`. */
export type Grpc = {
  readonly Client: new (address: string, credentials: object, options: object) => GrpcClient;
  readonly Metadata: new () => GrpcMetadata;
  readonly credentials: {
    createInsecure(): object;
    createFromSecureContext(context: object, verify: object): object;
  };
};
export type GrpcMetadata = { set(key: string, value: string): void };
export type GrpcError = { readonly code?: number; readonly details?: string; readonly message: string };
export type GrpcCall = { cancel(): void };
export type GrpcStream = GrpcCall & {
  write(message: object): void;
  on(event: "data", run: (message: object) => void): GrpcStream;
  on(event: "error", run: (error: GrpcError) => void): GrpcStream;
  on(event: "end", run: () => void): GrpcStream;
};
type Serialize = (message: object) => Buffer;
type Deserialize = (bytes: Buffer) => object;
export type GrpcClient = {
  makeUnaryRequest(
    path: string,
    serialize: Serialize,
    deserialize: Deserialize,
    message: object,
    metadata: object,
    options: object,
    answered: (error: GrpcError | null, message?: object) => void,
  ): GrpcCall;
  makeBidiStreamRequest(
    path: string,
    serialize: Serialize,
    deserialize: Deserialize,
    metadata: object,
    options: object,
  ): GrpcStream;
  close(): void;
};
