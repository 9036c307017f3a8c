import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Counts in a file under a lock of Curator's: read, sleep, write. Prints how often it did, and how often it saw what a lock forbids. */
public class Contender {
  private static final ExecutorService THREADS = Executors.newCachedThreadPool();

  public static void main(String[] args) throws Exception {
    String path = args[1];
    Path file = Path.of(args[2]);
    String kind = args[3];
    int rounds = Integer.parseInt(args[4]);
    int pauseMs = Integer.parseInt(args[6]);
    var client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    System.out.println("\"ready\"");
    long until = System.nanoTime() + Long.parseLong(args[5]) * 1_000_000;
    int count = 0;
    int wrong = 0;
    while (count < rounds && System.nanoTime() < until) {
      try (var taken = take(client, path, kind)) {
        int before = Integer.parseInt(Files.readString(file));
        Thread.sleep(3);
        if (Integer.parseInt(Files.readString(file)) != before) wrong++;
        if (!kind.equals("read")) Files.writeString(file, Integer.toString(before + 1));
        count++;
      }
      if (pauseMs > 0) Thread.sleep(ThreadLocalRandom.current().nextInt(pauseMs));
    }
    System.out.println("{\"count\":" + count + ",\"wrong\":" + wrong + "}");
    client.close();
    THREADS.shutdown();
  }

  /** What it answers gives back what was taken. */
  private static AutoCloseable take(CuratorFramework client, String path, String kind) throws Exception {
    switch (kind) {
      case "latch" -> {
        var latch = new LeaderLatch(client, path, "a latch");
        latch.start();
        latch.await();
        return latch;
      }
      case "selector" -> {
        var elected = new CountDownLatch(1);
        var over = new CountDownLatch(1);
        var listener = new LeaderSelectorListenerAdapter() {
          public void takeLeadership(CuratorFramework ours) throws Exception {
            elected.countDown();
            over.await();
          }
        };
        new LeaderSelector(client, path, THREADS, listener).start();
        elected.await();
        return over::countDown;
      }
      default -> {
        InterProcessLock lock = switch (kind) {
          case "read" -> new InterProcessReadWriteLock(client, path).readLock();
          case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
          default -> new InterProcessMutex(client, path);
        };
        lock.acquire();
        return lock::release;
      }
    }
  }
}
