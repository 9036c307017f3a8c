export const STYLE = ``;
