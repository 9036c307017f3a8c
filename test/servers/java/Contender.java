import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Counts in a file under a lock of Curator's: read, sleep, write. Prints how often it saw something that a lock forbids. */
public class Contender {
  public static void main(String[] args) throws Exception {
    String path = args[1];
    Path file = Path.of(args[2]);
    int rounds = Integer.parseInt(args[4]);
    var client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    System.out.println("\"ready\"");
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
      InterProcessLock lock = switch (args[3]) {
        case "read" -> new InterProcessReadWriteLock(client, path).readLock();
        case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
        default -> new InterProcessMutex(client, path);
      };
      lock.acquire();
      try {
        int before = Integer.parseInt(Files.readString(file));
        Thread.sleep(3);
        if (Integer.parseInt(Files.readString(file)) != before) wrong++;
        if (!args[3].equals("read")) Files.writeString(file, Integer.toString(before + 1));
      } finally {
        lock.release();
      }
    }
    System.out.println(wrong);
    client.close();
  }
}
