import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryOneTime;

/** For each line that it reads: a permit of Curator's semaphore, kept until the end. Prints whether it got one within a second. */
public class Permits {
  public static void main(String[] args) throws Exception {
    var client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    var semaphore = new InterProcessSemaphoreV2(client, args[1], Integer.parseInt(args[2]));
    System.out.println("\"ready\"");
    for (var lines = new Scanner(System.in); lines.hasNextLine(); lines.nextLine()) {
      System.out.println(semaphore.acquire(1, TimeUnit.SECONDS) != null);
    }
    client.close();
  }
}
