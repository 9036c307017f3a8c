/** What a list can contain; the two links belong to the list. */
export type Node<T> = { before: T | null; after: T | null };

/** Order with O(1) removal from anywhere. (A Map keeps order too, but finding its first key after many removals is slow.) */
export class LinkedList<T extends Node<T>> {
  first: T | null = null;
  last: T | null = null;

  push(item: T): void {
    this.insertAfter(this.last, item);
  }

  insertAfter(before: T | null, item: T): void {
    const after = before === null ? this.first : before.after;
    item.before = before;
    item.after = after;
    if (before === null) this.first = item;
    else before.after = item;
    if (after === null) this.last = item;
    else after.before = item;
  }

  remove(item: T): void {
    if (item.before === null) this.first = item.after;
    else item.before.after = item.after;
    if (item.after === null) this.last = item.before;
    else item.after.before = item.before;
    item.before = null;
    item.after = null;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let item = this.first; item !== null; ) {
      // Read first: the loop's body may remove the item.
      const { after } = item;
      yield item;
      item = after;
    }
  }
}
