import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.StringJoiner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator's mutex, measured on command: a line with a word and a count in, a JSON line of nanoseconds out. */
public class CuratorPeer {
  static CuratorFramework open(String host) throws Exception {
    var client = CuratorFrameworkFactory.newClient(host, new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    return client;
  }

  static long pair(CuratorFramework client) throws Exception {
    var lock = new InterProcessMutex(client, "/curator/pair");
    long start = System.nanoTime();
    lock.acquire();
    lock.release();
    return System.nanoTime() - start;
  }

  /** From the release call to the acquisition in another session. */
  static long handOver(CuratorFramework one, CuratorFramework other) throws Exception {
    var holder = new InterProcessMutex(one, "/curator/hand-over");
    var waiter = new InterProcessMutex(other, "/curator/hand-over");
    holder.acquire();
    long[] got = new long[1];
    var thread = new Thread(() -> {
      try {
        waiter.acquire();
        got[0] = System.nanoTime();
        waiter.release();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    });
    thread.start();
    while (one.getChildren().forPath("/curator/hand-over").size() < 2) Thread.sleep(1);
    Thread.sleep(10);
    long start = System.nanoTime();
    holder.release();
    thread.join();
    return got[0] - start;
  }

  public static void main(String[] args) throws Exception {
    var one = open(args[0]);
    var other = open(args[0]);
    System.out.println("\"ready\"");
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] words = line.split(" ");
      var taken = new StringJoiner(",", "[", "]");
      for (int n = 0; n < Integer.parseInt(words[1]); n++) {
        taken.add(Long.toString(words[0].equals("pairs") ? pair(one) : handOver(one, other)));
      }
      System.out.println(taken);
    }
  }
}
