/** What a real shop does between looking at the stock and taking from it: ask the bank, reserve a parcel, … */
export const WORK_MS = 4;
