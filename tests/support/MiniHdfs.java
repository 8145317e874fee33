import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * HDFS with one name node and one data node, whose files are below the directory args[0]. Prints "port" and that of the
 * name node, and ends with its input. Blocks have 1 MiB, and an answer to a request for a listing has 7 files. The
 * directory /locked is one that only another user may use.
 */
public class MiniHdfs {
    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, args[0]);
        conf.setLong("dfs.blocksize", 1 << 20);
        conf.setInt("dfs.ls.limit", 7);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        cluster.waitActive();
        FileSystem files = cluster.getFileSystem();
        files.mkdirs(new Path("/locked"), new FsPermission((short) 0700));
        files.setOwner(new Path("/locked"), "another", "another");
        System.out.println("port " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }
}
