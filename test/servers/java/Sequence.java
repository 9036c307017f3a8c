import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Writes the data folder of a server whose folder /wrap/n gave out the sequence number args[1] last. */
public class Sequence {
  public static void main(String[] args) throws Exception {
    File folder = new File(args[0]);
    DataTree tree = new DataTree();
    byte[] empty = new byte[0];
    var everybody = ZooDefs.Ids.OPEN_ACL_UNSAFE;
    tree.createNode("/wrap", empty, everybody, 0, -1, 1, 1);
    tree.createNode("/wrap/n", empty, everybody, 0, -1, 2, 2);
    tree.createNode("/wrap/n/last", empty, everybody, 0, Integer.parseInt(args[1]), 3, 3);
    tree.deleteNode("/wrap/n/last", 4);
    tree.lastProcessedZxid = 4;
    new FileTxnSnapLog(folder, folder).save(tree, new ConcurrentHashMap<>(), true);
  }
}
